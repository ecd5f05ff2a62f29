package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answerTo is what a child answers to a request, with a target on which a test can plant faults.
func answerTo(t *testing.T, request any, plant func(*labtest.Target)) lab.ChildAnswer[report.Result] {
	t.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	target := labtest.NewTarget(3)
	plant(target)
	var out bytes.Buffer
	if err := Serve(bytes.NewReader(text), &out, "x", target.Open); err != nil {
		t.Fatal(err)
	}
	var answer lab.ChildAnswer[report.Result]
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestServe(t *testing.T) {
	request := Request{Dir: t.TempDir(), Hosts: 3, Clients: 2, ValueBytes: 100, Length: 20 * time.Millisecond}
	measured := false
	for request.Length = range labtest.Lengths(request.Length) {
		a := answerTo(t, request, func(*labtest.Target) {})
		if measured = a.Result != nil && a.Result.Ops > 0 && a.Result.FsyncsPerOp > 0 && a.Result.Clients == 2; measured {
			break
		}
		t.Logf("a window of %v: %+v", request.Length, a)
	}
	if !measured {
		t.Error("it does not measure")
	}
	twice := func(target *labtest.Target) { target.Deliver = func(host int, n uint64) int { return 2 } }
	if a := answerTo(t, request, twice); a.Result != nil || !a.Mismatch || !strings.Contains(a.Error, "applied twice") {
		t.Errorf("%+v", a)
	}
	refuses := func(target *labtest.Target) { target.Refuse = errors.New("no room") }
	if a := answerTo(t, request, refuses); a.Result != nil || a.Mismatch || !strings.Contains(a.Error, "no write was acknowledged within "+request.Length.String()) {
		t.Errorf("%+v", a)
	}
	request.Clients = 0
	if a := answerTo(t, request, func(*labtest.Target) {}); !strings.Contains(a.Error, "makes no sense") {
		t.Errorf("%+v", a)
	}
	if err := Serve(strings.NewReader("hello"), &bytes.Buffer{}, "x", func(context.Context, load.Setup) (load.Target, error) { return nil, nil }); err == nil {
		t.Error("a request that cannot be read is taken")
	}
}

// A client is answered once, by the value that it waits with and by no other one.
func TestWaiters(t *testing.T) {
	var w Waiters
	source := load.NewSource(64, 1)
	value := func(client uint32, seq uint64) []byte { return source.Value(load.ValueID{Client: client, Seq: seq}) }
	one, two := w.Add(value(1, 5)), w.Add(value(2, 0))
	w.Answer(value(1, 4), nil) // an older write, whose client has an error already
	w.Answer(value(3, 0), nil) // a client that waits elsewhere
	if len(one) != 0 || len(two) != 0 {
		t.Fatal("a client is answered by another value")
	}
	w.Answer(value(1, 5), nil)
	w.Answer(value(1, 5), errors.New("late"))
	gone := errors.New("gone")
	w.Fail(gone)
	if err := <-one; err != nil || len(one) != 0 {
		t.Error(err)
	}
	if err := <-two; err != gone || len(two) != 0 {
		t.Error(err)
	}
}
