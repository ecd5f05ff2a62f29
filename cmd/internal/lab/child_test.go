package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A child that outlives its context is killed, and the error says why the context ended.
func TestAskKillsAProcessThatHangs(t *testing.T) {
	why := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := AskChild[int](ctx, []string{"sh", "-c", "exec tail -f /dev/null"}, 1); !errors.Is(err, why) {
		t.Error(err)
	}
}

// The child gets the request and its answer is read.
func TestAskPassesRequestAndAnswer(t *testing.T) {
	echo, err := AskChild[map[string]int](t.Context(), []string{"sh", "-c", `printf '{"result":'; cat; echo '}'`}, map[string]int{"a": 5})
	if err != nil || echo["a"] != 5 {
		t.Errorf("%v, %v", echo, err)
	}
}

func TestErrorOutputIsBounded(t *testing.T) {
	var last ErrorTail
	for range 100 {
		fmt.Fprint(&last, strings.Repeat("x", 1000), "end")
	}
	if len(last.kept) != maxTailBytes || !strings.HasSuffix(last.Text(), "end") {
		t.Errorf("%d bytes", len(last.kept))
	}
}
