package sim

import (
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/outcome"
)

// A host that has told a caller that it is overloaded may say so, as after a command that it has not taken.
func TestACallThatFailsIsARefusal(t *testing.T) {
	w := &world{}
	w.config.MemoryBytes = enoughMemory
	r := &replica{life: &life{host: &machine{w: w}}, ghost: newGhost(1)}
	overloaded := diagnosis.Cause{Code: diagnosis.CodeOverloaded}
	if w.isTrue(r, overloaded) {
		t.Fatal("nothing was refused")
	}
	call := simCall{replica: r, command: "x", failed: outcome.ErrOverloaded}
	if call.checkFailure(w); !w.isTrue(r, overloaded) {
		t.Error("a call was refused, and the host may not say so")
	}
}
