package history

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/sim/history"
)

// Lists checks keys that only Append changes, whose elements are all different; other keys are left out. It
// returns how many appends it has seen in the lists that were found, and an error if
//
//   - two lists that were found are not the beginning of one another: members have applied another order;
//   - an element is in a list twice: a change has taken effect twice;
//   - an element is in a list that no operation has appended, or one that was refused, or one that began
//     later;
//   - an append was answered, and is not where its answer has put it;
//   - an operation that began after another one had returned has found a shorter list.
//
// So each answered append took effect exactly once, each other one at most once, and the history of the key
// is linearizable: the list is the order. It takes time for sorting, and reads each list once.
func (h History) Lists() (appends int, err error) {
	return h.eachKey(func(key History) (int, error) {
		if !key.isList() {
			return 0, nil
		}
		return key.list()
	})
}

// isList reports whether there are appends. h is of one key.
func (h History) isList() bool {
	return slices.ContainsFunc(h, func(o Operation) bool { return o.Kind == Append })
}

// list checks one key.
func (h History) list() (appends int, err error) {
	longest, by := h.longest()
	place := map[string]int{}
	for i, element := range longest {
		if at, twice := place[element]; twice {
			return 0, fmt.Errorf("history: %q was appended twice, as element %d and %d\n  %v", element, at, i+1, by)
		}
		place[element] = i + 1
	}
	if err := h.checkAppends(place, len(longest)); err != nil {
		return 0, err
	}
	var all []placed
	first := map[int]*Operation{} // the operation that returned first of those that have seen so many elements
	for i := range h {
		o := &h[i]
		if o.Outcome != Answered {
			continue
		}
		have := result(o)
		if !slices.Equal(have, longest[:min(len(have), len(longest))]) {
			return 0, fmt.Errorf("history: two lists have another order, or other elements\n  %v\n  %v", o, by)
		}
		if f := first[len(have)]; f == nil || o.Return < f.Return {
			first[len(have)] = o
		}
		all = append(all, placed{o, uint64(len(have)), o.Kind == Append})
	}
	if err := h.notFromTheFuture(place, first, len(longest)); err != nil {
		return 0, err
	}
	return len(longest), inRealTime("lengths of the list", all)
}

// result returns the list as an answered operation has left it.
func result(o *Operation) []string {
	if o.Kind == Append {
		return append(history.List(o.Got), o.Value)
	}
	return history.List(o.Got)
}

// longest returns the longest list that was found, and the operation that has found it.
func (h History) longest() (longest []string, by *Operation) {
	for i := range h {
		if o := &h[i]; o.Outcome == Answered {
			if have := result(o); by == nil || len(have) > len(longest) {
				longest, by = have, o
			}
		}
	}
	return longest, by
}

// checkAppends compares the elements of the longest list with the operations that have appended them.
func (h History) checkAppends(place map[string]int, length int) error {
	appended := map[string]bool{}
	for i := range h {
		o := &h[i]
		switch {
		case o.Kind == Get:
			continue
		case o.Kind != Append:
			return fmt.Errorf("the history cannot be checked: beside appends there is %v", o)
		case appended[o.Value] || o.Value == "":
			return fmt.Errorf("the history cannot be checked: two operations append %q, or one appends nothing", o.Value)
		case o.Outcome == Refused && place[o.Value] > 0:
			return fmt.Errorf("history: an append that was refused is element %d\n  %v", place[o.Value], o)
		case o.Outcome == Answered && place[o.Value] != len(history.List(o.Got))+1:
			return fmt.Errorf("history: an append is element %d (0: it is lost), and its answer says element %d\n  %v", place[o.Value], len(history.List(o.Got))+1, o)
		}
		appended[o.Value] = true
	}
	for element, at := range place {
		if !appended[element] {
			return fmt.Errorf("history: element %d of %d is %q, which no operation has appended", at, length, element)
		}
	}
	return nil
}

// notFromTheFuture checks that no list was returned before one of its elements was appended. first has, by
// length, the operation that returned first.
func (h History) notFromTheFuture(place map[string]int, first map[int]*Operation, length int) error {
	earliest := make([]*Operation, length+2) // of those that have seen at least so many elements
	for n := length; n >= 0; n-- {
		if earliest[n] = earliest[n+1]; first[n] != nil && (earliest[n] == nil || first[n].Return < earliest[n].Return) {
			earliest[n] = first[n]
		}
	}
	for i := range h {
		o := &h[i]
		if at := place[o.Value]; o.Kind == Append && at > 0 && earliest[at] != nil && earliest[at].Return < o.Call {
			return fmt.Errorf("history: element %d was found before it was appended\n  %v\n  %v", at, earliest[at], o)
		}
	}
	return nil
}
