package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
)

// All lines are applied, many more than are under way; none is lost or doubled. A node that is closed says
// so.
func TestLoad(t *testing.T) {
	v := &volume{}
	c := millracetest.New(t, 1, func(uint64) millrace.Machine[[]byte, int64] { return millrace.InMemory(v, millrace.Bytes()) })
	node := c.Node(1)
	var lines strings.Builder
	want := int64(0)
	for i := range 5 * window {
		n, _ := fmt.Fprintf(&lines, "line %d\n", i)
		want += int64(n - 1)
	}
	if n, err := load(node, strings.NewReader(lines.String())); n != 5*window || err != nil {
		t.Fatal(n, err)
	}
	if err := node.ViewExclusive(t.Context(), millrace.Linearizable, func() error { return nil }); err != nil || v.bytes != want {
		t.Errorf("%d bytes, want %d; %v", v.bytes, want, err)
	}
	if n, err := load(node, strings.NewReader("")); n != 0 || err != nil {
		t.Error(n, err)
	}
	if err := node.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n, err := load(node, strings.NewReader("late\n")); n != 0 || !errors.Is(err, millrace.ErrStopped) {
		t.Error(n, err)
	}
}
