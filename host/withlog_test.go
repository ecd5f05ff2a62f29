package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/loopback"
)

// counted is a log that a program brings: here one of package wal that counts its appends.
type counted struct {
	host.Log
	opened *int
}

// A host runs on a log that the program brings, and refuses one that is not the log of its directory.
func TestHostOnALogThatWasBrought(t *testing.T) {
	network, dir, elsewhere := loopback.NewNetwork(), scratch.Dir(t), t.TempDir()
	c := host.Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "a"}, SegmentBytes: 1 << 20}
	opened := 0
	brought := func(in string) host.Option {
		return host.WithLog(func(c host.LogConfig) (host.Log, error) {
			c.Dir = in
			l, err := host.OpenWAL(c)
			opened++
			return counted{l, &opened}, err
		})
	}
	for life := range 2 {
		h, err := host.Open(t.Context(), c, host.WithTransport(network.Host(1)), host.WithLogger(quiet), brought(elsewhere))
		if err != nil {
			t.Fatal(err)
		}
		g, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: 1}, newJournal())
		if err != nil {
			t.Fatal(err)
		}
		g.Campaign()
		if _, err := g.WaitLeader(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Propose(deadline(t), fmt.Append(nil, life)); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 2 {
		t.Errorf("the log was opened %d times, want once in each life", opened)
	}
	h, err := host.Open(t.Context(), c, host.WithTransport(network.Host(1)), host.WithLogger(quiet), brought(scratch.Dir(t)))
	if err == nil {
		t.Fatalf("a host took another log: %v", h.Close(deadline(t)))
	}
	if !strings.Contains(err.Error(), "log") {
		t.Errorf("the error does not name the log: %v", err)
	}
}
