// A control plane of rate limit configurations with go-control-plane, the library that Envoy Gateway and others embed.
//
// It reads commands from standard input, one JSON object per line, and answers each with a line on standard output:
//
//	{"push": "VERSION", "domains": {"edge": {"user": {"unit": 4, "requests": 2}}}}  -> pushed VERSION
//
// Before that it writes `listening ADDRESS`. For each request of a client it writes a line `request {...}`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sort"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
)

type limit struct {
	Unit     int32  `json:"unit"`
	Requests uint32 `json:"requests"`
}

type command struct {
	Push    string                      `json:"push"`
	Domains map[string]map[string]limit `json:"domains"`
}

type seen struct {
	Version string `json:"version"`
	Nonce   string `json:"nonce"`
	Node    string `json:"node"`
	Error   string `json:"error"`
}

var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func resources(domains map[string]map[string]limit) []types.Resource {
	var all []types.Resource
	for domain, limits := range domains {
		config := &ratelimit.RateLimitConfig{Name: domain, Domain: domain}
		keys := make([]string, 0, len(limits))
		for key := range limits {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			config.Descriptors = append(config.Descriptors, &ratelimit.RateLimitDescriptor{
				Key: key,
				RateLimit: &ratelimit.RateLimitPolicy{
					Unit:            ratelimit.RateLimitUnit(limits[key].Unit),
					RequestsPerUnit: limits[key].Requests,
				},
			})
		}
		all = append(all, config)
	}
	return all
}

func main() {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	callbacks := server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
			line, err := json.Marshal(seen{
				request.GetVersionInfo(), request.GetResponseNonce(), request.GetNode().GetId(),
				request.GetErrorDetail().GetMessage(),
			})
			if err != nil {
				return err
			}
			say("request %s", line)
			return nil
		},
	}
	service := server.NewServer(context.Background(), snapshots, callbacks)
	rpc := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(rpc, service)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err)
	}
	say("listening %s", listener.Addr())
	go func() {
		fail(rpc.Serve(listener))
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var next command
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			fail(err)
		}
		content := map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources(next.Domains)}
		snapshot, err := cache.NewSnapshot(next.Push, content)
		if err != nil {
			fail(err)
		}
		if err := snapshots.SetSnapshot(context.Background(), "envoy-ratelimit", snapshot); err != nil {
			fail(err)
		}
		say("pushed %s", next.Push)
	}
	// The end of the input is the end of the controller.
}
