package history

import (
	"slices"
	"strings"
	"testing"
)

// verdicts gives each history to a check. want is a part of the error; "" is none.
func verdicts(t *testing.T, check func(History) error, rows []verdict) {
	t.Helper()
	for _, c := range rows {
		err := check(script(t, c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

type verdict struct{ name, text, want string }

func TestMonotonic(t *testing.T) {
	verdicts(t, History.Monotonic, []verdict{
		{"nothing is known", "1 2 put a\n3 4 get b", ""},
		{"one after the other", "1 2 put a at 5\n3 4 get a at 5\n5 6 put b at 6\n7 8 get b at 9", ""},
		{"concurrent, in any order", "1 9 put a at 7\n2 8 put b at 5\n3 7 get none at 4", ""},
		{"a read that has not seen an answered change", "1 2 put a at 5\n3 4 get none at 4", "index 5 and 4"},
		{"a read behind another read", "1 2 get none at 9\n3 4 get none at 8", "index 9 and 8"},
		{"a read that may be old enough", "1 2 put a at 5\n4 5 get none age 3 at 4", ""},
		{"a read that is too old", "1 2 put a at 5\n4 5 get none age 1 at 4", "index 5 and 4"},
		{"a change before one that was answered", "1 2 put a at 5\n3 4 put b at 4", "index 5 and 4"},
		{"a change at the place of one that was read", "1 2 get none at 5\n3 4 put a at 5", "index 5 and 5"},
		{"two changes at one index", "1 9 put a at 5\n2 8 put b at 5", "two changes have the index 5"},
		{"what is unknown has no place", "1 2 put a at 5\n3 - put b at 4", ""},
	})
}

func TestChains(t *testing.T) {
	verdicts(t, func(h History) error { _, err := h.Chains(); return err }, []verdict{
		{"nothing", "", ""},
		{"exchanges and swaps", "1 2 exchange a found none\n3 4 swap a b took\n5 6 exchange c found b\n7 8 get c", ""},
		{"a beginning that is not known", "1 2 put a\n3 4 exchange b found a\n5 6 put c\n7 8 swap c d took", ""},
		{"a lost update", "1 9 exchange a found none\n2 8 swap a b took\n3 7 swap a c took", `two changes have replaced "a"`},
		{"two first exchanges", "1 2 exchange a found none\n3 4 exchange b found none", `two changes have replaced ""`},
		{"two beginnings, with a delete between", "1 2 exchange a found none\n3 4 delete a took\n5 6 exchange b found none", ""},
		{"a delete and a swap of one value", "1 2 put a\n3 9 delete a took\n4 8 swap a b took", `two changes have replaced "a"`},
		{"an unknown swap, found, and another one", "1 2 put a\n3 - swap a b\n4 5 get b\n6 7 swap a c took", `two changes have replaced "a"`},
		{"an unknown swap, which an unknown delete may have found", "1 2 put a\n3 - swap a b\n4 - delete b\n5 6 swap a c took", ""},
		{"an unknown swap, not found", "1 2 put a\n3 - swap a b\n4 5 swap a c took", ""},
		{"a value from nowhere", "1 2 exchange a found x", "no operation has written"},
		{"a read from nowhere", "1 2 get x", "no operation has written"},
		{"a value that was refused", "1 x put a\n3 4 exchange b found a", "one that was refused"},
		{"a circle", "1 9 exchange a found b\n2 8 exchange b found a", "in a circle"},
		{"against the time", "1 2 exchange b found a\n3 4 put a", "places in the chain"},
		{"a stale read", "1 2 put a\n3 4 exchange b found a\n5 6 get a", "places in the chain"},
		{"a read that may be old enough", "1 2 put a\n3 4 exchange b found a\n5 6 get a age 3", ""},
		{"a read from the future", "1 2 get b\n3 4 put a\n5 6 exchange b found a", "places in the chain"},
		{"a read of nothing, later", "1 2 exchange a found none\n3 4 get none", "places in the chain"},
		{"one value twice", "1 2 put a\n3 4 put a", "cannot be checked"},
	})
}

func TestLists(t *testing.T) {
	verdicts(t, func(h History) error { _, err := h.Lists(); return err }, []verdict{
		{"no list", "1 2 put a\n3 4 get b", ""},
		{"one after the other", "1 2 append a found none\n3 4 append b found a\n5 6 get a,b", ""},
		{"concurrent", "1 9 append a found b\n2 8 append b found none\n3 7 get b\n4 6 get none", ""},
		{"unknown, and there", "1 - append a\n2 3 append b found a", ""},
		{"unknown, and late", "1 - append a\n2 3 append b found none\n4 5 get b\n6 7 get b,a", ""},
		{"unknown, and never", "1 - append a\n2 3 append b found none\n4 5 get b", ""},
		{"unknown, and twice", "1 - append a\n2 3 append b found a\n4 5 get a,b,a", `"a" was appended twice`},
		{"answered, and twice", "1 2 append a found none\n3 4 get a,a", `"a" was appended twice`},
		{"refused, and there", "1 x append a\n2 3 get a", "was refused"},
		{"refused, and not there", "1 x append a\n2 3 get none", ""},
		{"from nowhere", "1 2 append a found none\n3 4 get a,x", "no operation has appended"},
		{"lost", "1 2 append a found none\n3 4 append b found none\n5 6 get b", "is lost"},
		{"two orders", "1 9 append a found none\n2 9 append b found a\n3 9 get b,a", "another order"},
		{"a stale list", "1 2 append a found none\n3 4 append b found a\n5 6 get a", "lengths of the list"},
		{"a list that may be old enough", "1 2 append a found none\n3 4 append b found a\n5 6 get a age 3", ""},
		{"an append that goes back", "1 2 append a found b\n3 4 append b found none", "before it was appended"},
		{"from the future", "1 2 get a\n3 - append a", "before it was appended"},
		{"not where the answer says", "1 2 append a found b\n1 2 append b found a", "its answer says"},
		{"a put among appends", "1 2 append a found none\n3 4 put b", "cannot be checked"},
	})
}

// judgeJudges spoils what clients saw in each way that a checker of known orders must find, as far as the
// history has what is needed for that, and wants it to be rejected.
func judgeJudges(t *testing.T, h History) {
	t.Helper()
	last := func(is func(*Operation) bool) int {
		return len(h) - 1 - slices.IndexFunc(reversed(h), func(o Operation) bool { return is(&o) })
	}
	spoil := func(what string, at int, change func(*Operation), check func(History) error) {
		if at >= len(h) || at < 0 {
			return
		}
		planted := slices.Clone(h)
		if change(&planted[at]); check(planted) == nil {
			t.Errorf("%s was accepted: %v in place of %v", what, planted[at], h[at])
		}
	}
	answered := func(kind Kind) func(*Operation) bool {
		return func(o *Operation) bool { return o.Kind == kind && o.Outcome == Answered && o.Got != "" && o.Index > 0 }
	}
	spoil("an index before all others", last(answered(Get)), func(o *Operation) { o.Call, o.Return, o.Index = Never-2, Never-1, 1 }, History.Monotonic)
	lists := func(h History) error { _, err := h.Lists(); return err }
	// That is wrong for sure only behind another append to the list, which was answered before this one began.
	behind := func(o *Operation) bool {
		return answered(Append)(o) && slices.ContainsFunc(h, func(p Operation) bool {
			return p.Kind == Append && p.Key == o.Key && p.Outcome == Answered && p.Return < o.Call
		})
	}
	spoil("an append that was lost", last(behind), func(o *Operation) { o.Got = "" }, lists)
	spoil("an append that counted twice", last(answered(Append)), func(o *Operation) { o.Got += "," + o.Value }, lists)
	chains := func(h History) error { _, err := h.Chains(); return err }
	spoil("an exchange of what was never written", last(answered(Exchange)), func(o *Operation) { o.Got = "nothing" }, chains)
}

func reversed(h History) History {
	r := slices.Clone(h)
	slices.Reverse(r)
	return r
}
