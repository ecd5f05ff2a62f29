package smtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace"
)

// Each version is tested, and each change.
func TestCourses(t *testing.T) {
	if all := courses(millrace.Versions{}, 9); len(all) != 1 || all[0] != (course{}) {
		t.Errorf("%v", all)
	}
	want := []course{{1, 1, 0}, {1, 2, 5}, {2, 2, 0}, {2, 3, 5}, {3, 3, 0}, {1, 3, 5}}
	all := courses(millrace.Versions{Lowest: 1, Highest: 3}, 9)
	if len(all) != len(want) {
		t.Fatalf("%v, want %v", all, want)
	}
	for i := range want {
		if all[i] != want[i] {
			t.Errorf("course %d is %v, want %v", i, all[i], want[i])
		}
	}
	if all := courses(millrace.Versions{Highest: 1 << 31}, 9); len(all) != 2*maxVersions || all[0].from != 1<<31-maxVersions+1 {
		t.Errorf("%d courses, from %v", len(all), all[0])
	}
	if c := want[1]; c.cut(3, 4) != 2 || c.cut(5, 4) != 4 || c.version(4) != 1 || c.version(5) != 2 {
		t.Errorf("a batch has two versions")
	}
}

// A machine that does what Command.Version says passes. One that remembers a change beside its snapshot does
// not, and the error names the versions.
func TestVersions(t *testing.T) {
	remembers := true
	machine := func() millrace.Machine[order, string] {
		behind := 0 // commands at version 2
		s := newStore(func(s *store) {
			s.before = func(s *store, batch []millrace.Command[order], results []string) {
				for i, c := range batch {
					if c.Version == 2 {
						behind++
					}
					results[i] = s.apply(c)
				}
			}
			s.sum = func(s *store) string {
				if behind > 0 && remembers {
					return strconv.Itoa(behind)
				}
				return sortedSum(s)
			}
		})
		return millrace.InMemory(s, millrace.JSON[order]()).Versions(1, 2)
	}
	err := check(t, machine, slices.Concat(orders, orders))
	if err == nil || !strings.Contains(err.Error(), "with 13 commands at version 1, and then version 2: ") || !strings.Contains(err.Error(), "continues differently") {
		t.Errorf("a change that is not in the snapshot: %v", err)
	}
	remembers = false
	if err := check(t, machine, orders); err != nil {
		t.Error(err)
	}
}
