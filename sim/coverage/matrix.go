package coverage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Matrix counts injections by fault and phase. The zero value has counted nothing.
type Matrix struct {
	hits [faults][phases]uint64
}

// Cell is a place in a matrix.
type Cell struct {
	Fault Fault
	Phase Phase
}

func (c Cell) String() string { return c.Fault.String() + " in " + c.Phase.String() }

// Hit counts an injection of f while p held.
func (m *Matrix) Hit(f Fault, p Phase) { m.hits[f][p]++ }

// HitAll counts an injection of f while all phases of the set held.
func (m *Matrix) HitAll(f Fault, during Set) {
	for p := range phases {
		if during.Has(p) {
			m.hits[f][p]++
		}
	}
}

// At returns how many injections of f were counted while p held.
func (m *Matrix) At(f Fault, p Phase) uint64 { return m.hits[f][p] }

// Add adds the counts of another matrix.
func (m *Matrix) Add(other *Matrix) {
	for f := range m.hits {
		for p := range m.hits[f] {
			m.hits[f][p] += other.hits[f][p]
		}
	}
}

// Sum returns the sum of all cells. An injection counts once for each phase that held.
func (m *Matrix) Sum() (n uint64) {
	for f := range m.hits {
		for _, hits := range m.hits[f] {
			n += hits
		}
	}
	return n
}

// Missing returns the cells that can be hit and have fewer hits than the given number, row by row.
func (m *Matrix) Missing(atLeast uint64) (cells []Cell) {
	for f := range faults {
		for p := range phases {
			if _, never := Impossible(f, p); !never && m.hits[f][p] < atLeast {
				cells = append(cells, Cell{f, p})
			}
		}
	}
	return cells
}

// MarshalJSON writes {"fault":{"phase":hits}}, without the cells that have none.
func (m Matrix) MarshalJSON() ([]byte, error) {
	rows := map[string]map[string]uint64{}
	for f := range faults {
		for p, hits := range m.hits[f] {
			if hits == 0 {
				continue
			}
			if rows[f.String()] == nil {
				rows[f.String()] = map[string]uint64{}
			}
			rows[f.String()][phaseNames[p]] = hits
		}
	}
	return json.Marshal(rows)
}

// UnmarshalJSON reads what MarshalJSON wrote. A name that this version does not know is an error: its counts
// would be lost.
func (m *Matrix) UnmarshalJSON(data []byte) error {
	var rows map[string]map[string]uint64
	if err := json.Unmarshal(data, &rows); err != nil {
		return err
	}
	*m = Matrix{}
	for fault, row := range rows {
		f, err := ParseFault(fault)
		if err != nil {
			return err
		}
		for phase, hits := range row {
			p := slices.Index(phaseNames[:], phase)
			if p < 0 {
				return fmt.Errorf("no phase has the name %q; the names are %s", phase, strings.Join(phaseNames[:], ", "))
			}
			m.hits[f][p] = hits
		}
	}
	return nil
}

// ParseFault returns the fault with the given name.
func ParseFault(name string) (Fault, error) {
	f := slices.Index(faultNames[:], name)
	if f < 0 {
		return 0, fmt.Errorf("no fault has the name %q; the names are %s", name, strings.Join(faultNames[:], ", "))
	}
	return Fault(f), nil
}

// String returns the matrix as a table for people: a row for each fault, a column for each phase, a dash for
// a cell that cannot be hit.
func (m *Matrix) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-21s", "")
	for _, name := range phaseNames {
		fmt.Fprintf(&b, " %8.8s", name)
	}
	for f := range faults {
		fmt.Fprintf(&b, "\n%-21s", f)
		for p, hits := range m.hits[f] {
			if _, never := Impossible(f, Phase(p)); never && hits == 0 {
				fmt.Fprintf(&b, " %8s", "-")
			} else {
				fmt.Fprintf(&b, " %8d", hits)
			}
		}
	}
	return b.String()
}

func nameOf(names []string, i int, what string) string {
	if i >= len(names) {
		return fmt.Sprintf("%s %d", what, i)
	}
	return names[i]
}
