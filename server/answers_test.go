package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lists share --range-memory-bytes: one waits while others have it, by gRPC, as JSON, and in a transaction.
// One list may be larger.
func TestListsShareTheirMemory(t *testing.T) {
	c := newCluster(t, 1, "--range-memory-bytes=1048576", "--max-request-bytes=2097152")
	cl := c.client(0)
	for _, key := range []string{"a1", "a2", "a3"} {
		if _, err := cl.Put(t.Context(), key, strings.Repeat("v", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	url := "http://" + c.configs[0].ListenClient[0].Host
	lists := map[string]func(context.Context) error{
		"gRPC": func(ctx context.Context) error {
			_, err := cl.Get(ctx, "a", clientv3.WithPrefix())
			return err
		},
		"transaction": func(ctx context.Context) error {
			_, err := cl.Txn(ctx).Then(clientv3.OpGet("a1"), clientv3.OpGet("a2")).Commit()
			return err
		},
		"JSON": func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/kv/range", strings.NewReader(`{"key": "YQ==", "range_end": "Yg=="}`))
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		},
	}
	for name, list := range lists {
		if err := list(t.Context()); err != nil {
			t.Errorf("%s: a list that is larger than the memory: %v", name, err)
		}
	}
	budget := c.members[0].store.Answers()
	other := budget.Begin()
	if err := other.Grow(t.Context(), 2<<20); err != nil {
		t.Fatal(err)
	}
	for name, list := range lists {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := list(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: a list beside a large one: %v", name, err)
		}
		cancel()
	}
	if _, err := cl.Get(t.Context(), "a", clientv3.WithPrefix()); !errors.Is(err, rpctypes.ErrTooManyRequests) {
		t.Errorf("a list whose turn does not come: %v", err)
	}
	if _, err := cl.Get(t.Context(), "a", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	if u := budget.Usage(); u.Refused != 1 {
		t.Errorf("%d lists were refused, want 1", u.Refused)
	}
	other.End()
	for name, list := range lists {
		if err := list(t.Context()); err != nil {
			t.Errorf("%s: a list when there is memory again: %v", name, err)
		}
	}
}
