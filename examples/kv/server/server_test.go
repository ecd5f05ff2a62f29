package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// A command and a result are what they were made of, and no bytes make the state machine panic.
func TestForms(t *testing.T) {
	for _, c := range []Command{
		{Op: Put, Key: "k", Value: []byte("v")},
		{Op: Put, When: IfVersion, Version: math.MaxUint64, Key: strings.Repeat("k", MaxKeyBytes), Value: []byte{}},
		{Op: Delete, When: IfAbsent, Key: "\x00", Value: []byte{}},
		{Op: Add, Key: "", Delta: math.MinInt64, Value: []byte{}},
		{Op: PutFor, Key: "k", Value: []byte("v"), TTL: time.Hour},
		{Op: Tick, Value: []byte{}},
	} {
		b, err := c.AppendBinary(nil)
		var have Command
		if err := have.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(have, c) {
			t.Errorf("%+v became %+v (%v)", c, have, err)
		}
		for n := range len(b) - len(c.Value) {
			if have.UnmarshalBinary(b[:n]) == nil {
				t.Errorf("%d of the %d bytes of %+v are a command, too", n, len(b), c)
			}
		}
		if err != nil || len(b) > maxCommandBytes {
			t.Errorf("%d bytes (%v)", len(b), err)
		}
	}
	for _, b := range []string{"", "\x00\x00\x00\x00\x00", "\x06\x00\x00\x00\x00", "\x01\x03\x00\x00\x00", "\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if err := new(Command).UnmarshalBinary([]byte(b)); err == nil {
			t.Errorf("%q is a command", b)
		}
	}
	want := Result{Mismatch, 7, []byte("v")}
	b, _ := want.AppendBinary(nil)
	var have Result
	if err := have.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("%+v became %+v (%v)", want, have, err)
	}
	if have.UnmarshalBinary(nil) == nil {
		t.Error("no bytes are a result")
	}
}

// Each failure has a status, and says whether the change may have been applied.
func TestFailures(t *testing.T) {
	a := &api{id: 1}
	for _, c := range []struct {
		err     error
		code    int
		outcome string
		retry   string
	}{
		{&millrace.NotLeaderError{Leader: 2, ClientAddr: "127.0.0.1:8002"}, 307, "none", ""},
		{&millrace.NotLeaderError{}, 503, "none", "1"},
		{&millrace.OverloadedError{RetryAfter: 2100 * time.Millisecond}, 503, "none", "3"},
		{millrace.ErrStopped, 503, "none", "1"},
		{millrace.ErrDropped, 503, "none", "1"},
		{fmt.Errorf("not proposed: %w", context.DeadlineExceeded), 503, "none", "1"},
		{millrace.ErrTooLarge, 413, "none", ""},
		{fmt.Errorf("%w: %w", millrace.ErrIndeterminate, context.DeadlineExceeded), 504, "unknown", ""},
		{millrace.ErrNoResult, 504, "unknown", ""},
		{&millrace.AlreadyAppliedError{}, 409, "unknown", ""},
		{millrace.ErrSessionExpired, 410, "unknown", ""},
	} {
		w := httptest.NewRecorder()
		a.fail(w, httptest.NewRequest(http.MethodPut, "/keys/k", nil), c.err)
		if h := w.Header(); w.Code != c.code || h.Get("Millrace-Outcome") != c.outcome || h.Get("Retry-After") != c.retry {
			t.Errorf("%v: status %d, outcome %s, retry after %q; want %d, %s, %q", c.err, w.Code, h.Get("Millrace-Outcome"), h.Get("Retry-After"), c.code, c.outcome, c.retry)
		}
		if c.code != http.StatusTemporaryRedirect && !strings.Contains(w.Body.String(), c.err.Error()) {
			t.Errorf("%v: the body has no reason: %s", c.err, w.Body)
		}
	}
}

// What is wrong with a setting is said in a sentence that names it.
func TestSettings(t *testing.T) {
	const members, clients = "1=127.0.0.1:7001,2=localhost:7002,3=[::1]:7003", "1=127.0.0.1:8001,2=127.0.0.1:8002,3=127.0.0.1:8003"
	for _, c := range []struct{ args, want string }{
		{"-id 2 -dir d -members " + members + " -client-addresses " + clients, ""},
		{"-id 2 -dir d -peers " + members + " -http " + clients, ""}, // the earlier names
		{"-id 2 -dir d -members " + members + " -client-addresses 1=127.0.0.1:8001,2=10.0.0.2:8002,3=127.0.0.1:8003", "client-addresses: host 2: 10.0.0.2:8002 is not a loopback address"},
		{"-id 2 -public -dir d -members " + members + " -client-addresses 1=127.0.0.1:8001,2=10.0.0.2:8002", ""},
		{"-id 1 -dir d -members " + members + " -client-addresses 2=127.0.0.1:8002", "client-addresses has no address for this host, id 1"},
		{"-id 2 -dir d -members " + members + " -client-addresses " + clients + " -timeout 0s", "timeout is 0s, want 1ms to 1h"},
		{"-id 2 -dir d -members " + members + " -client-addresses " + clients + " -client-listen 127.0.0.1:9", ""},
		{"-id 2 -dir d -members " + members + " -client-addresses " + clients + " -client-listen :8001", "client-listen is :8001, which is not a loopback address"},
		{"-id 2 -dir d -public -members " + members + " -client-addresses " + clients + " -client-listen :8001", ""},
		{"-id 2 -dir d -members " + members + " -client-addresses " + clients + " -client-listen 8001", `client-listen is "8001", want host:port`},
		{"-id 2 -dir d -members " + members + " -client-addresses " + clients + " more", `"more" is no setting`},
	} {
		_, err := Parse("kv", strings.Fields(c.args), nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s:\n%v, want %q", c.args, err, c.want)
		}
	}
}
