package children

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
	var answer struct{}
	if err := Ask(ctx, []string{"sh", "-c", "exec tail -f /dev/null"}, 1, &answer); !errors.Is(err, why) {
		t.Error(err)
	}
}

// The child gets the request and its answer is read.
func TestAskPassesRequestAndAnswer(t *testing.T) {
	var answer struct{ Echo map[string]int }
	err := Ask(t.Context(), []string{"sh", "-c", `printf '{"echo":'; cat; echo '}'`}, map[string]int{"a": 5}, &answer)
	if err != nil || answer.Echo["a"] != 5 {
		t.Errorf("%v, %v", answer, err)
	}
}

func TestErrorOutputIsBounded(t *testing.T) {
	var last tail
	for range 100 {
		fmt.Fprint(&last, strings.Repeat("x", 1000), "end")
	}
	if len(last.kept) != maxTailBytes || !strings.HasSuffix(last.text(), "end") {
		t.Errorf("%d bytes", len(last.kept))
	}
}
