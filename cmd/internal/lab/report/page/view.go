// A View decides what to show of an archive, whatever the output: which labels tell points apart,
// which points make a line, which of them stand for their line, and what the tables have as columns. The
// page, the Markdown table and the pictures for README files all draw what is decided here, so they agree.
//
// A *family* is the points that differ in load alone. It is a line of the charts in which throughput meets
// latency. One of its points stands for it where a chart shows a single measurement over time: the fastest
// that was not saturated, and of this point the repeat with the median throughput.

package page

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// View is an archive with what its outputs need to know of it.
type View struct {
	*archive.Archive
	Varying  []string          // labels in which points differ, the load last
	Common   map[string]string // labels that all points share
	Families []Family
}

// Family is the points that differ in load alone, in order of the load.
type Family struct {
	Name   string
	Points []*archive.Point
}

// ViewOf looks at an archive.
func ViewOf(a *archive.Archive) *View {
	v := &View{Archive: a, Common: map[string]string{}}
	for _, name := range labelNames(a.Run) {
		if value, same := sharedValue(a.Run, name); same {
			v.Common[name] = value
		} else {
			v.Varying = append(v.Varying, name)
		}
	}
	v.Families = v.families()
	return v
}

// labelOrder puts what a reader looks for first in front; labels of recipes come between, the load last.
var labelOrder = []string{
	archive.LabelPipeline, archive.LabelLog, archive.LabelEngine, archive.LabelTransport, archive.LabelProcesses,
	archive.LabelOperation, archive.LabelNodes, archive.LabelGroups, archive.LabelDepth, archive.LabelValueBytes,
	archive.LabelFsyncDelay, archive.LabelBandwidth, archive.LabelNetworkDelay,
}

var loadLabels = []string{archive.LabelClients, archive.LabelRate}

func labelNames(r *archive.Run) []string {
	seen := map[string]bool{}
	for i := range r.Points {
		for name := range r.Points[i].Labels {
			seen[name] = true
		}
	}
	rank := func(name string) int {
		if i := slices.Index(labelOrder, name); i >= 0 {
			return i
		}
		if slices.Contains(loadLabels, name) {
			return len(labelOrder) + 1
		}
		return len(labelOrder)
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

func sharedValue(r *archive.Run, name string) (value string, same bool) {
	value = r.Points[0].Labels[name]
	for i := range r.Points {
		if v, ok := r.Points[i].Labels[name]; !ok || v != value {
			return "", false
		}
	}
	return value, true
}

// Groups puts points together that agree in all varying labels but those without. The order is that of the
// run; the name of a group says what tells it from the others.
func (v *View) Groups(without ...string) []Family {
	var groups []Family
	at := map[string]int{}
	for i := range v.Run.Points {
		p := &v.Run.Points[i]
		var key, name []string
		for _, label := range v.Varying {
			value, ok := p.Labels[label]
			if !ok || slices.Contains(without, label) {
				continue
			}
			key = append(key, label+"="+value)
			name = append(name, labelled(label, value))
		}
		k := strings.Join(key, "\n")
		if _, ok := at[k]; !ok {
			at[k] = len(groups)
			groups = append(groups, Family{Name: cmp.Or(strings.Join(name, ", "), v.Run.Recipe)})
		}
		g := &groups[at[k]]
		g.Points = append(g.Points, p)
	}
	return groups
}

// families are the groups without their loads. An open and a closed loop make a family each: a line from the
// points of one to those of the other would show nothing.
func (v *View) families() []Family {
	var families []Family
	both := len(v.LoadLabels()) == len(loadLabels)
	for _, g := range v.Groups(loadLabels...) {
		for _, label := range loadLabels {
			f := Family{Name: g.Name}
			for _, p := range g.Points {
				if loadLabel(p) == label {
					f.Points = append(f.Points, p)
				}
			}
			if both {
				f.Name += ", " + loopNames[label]
			}
			if len(f.Points) > 0 {
				families = append(families, f)
			}
		}
	}
	for _, f := range families {
		slices.SortStableFunc(f.Points, func(a, b *archive.Point) int { return cmp.Compare(load(a), load(b)) })
	}
	return families
}

var loopNames = map[string]string{archive.LabelClients: "closed loop", archive.LabelRate: "open loop"}

// loadLabel returns the label that is the load of a point. One that has none counts as a closed loop.
func loadLabel(p *archive.Point) string {
	if _, ok := p.Labels[archive.LabelRate]; ok {
		return archive.LabelRate
	}
	return archive.LabelClients
}

func load(p *archive.Point) float64 {
	x, _ := Number(p.Labels[loadLabel(p)])
	return x
}

// labelled renders a label for a legend. Some values speak for themselves.
func labelled(label, value string) string {
	switch label {
	case archive.LabelPipeline, archive.LabelLog, archive.LabelTransport, archive.LabelOperation:
		return value
	}
	return LabelText(label) + " " + ValueText(label, value)
}

// ValueText renders the value of a label. A rate that was computed from a sweep or a size is rounded.
func ValueText(label, value string) string {
	if x, ok := Number(value); ok && label == archive.LabelRate {
		return report.Count(x)
	}
	return value
}

// LabelText renders the name of a label.
func LabelText(name string) string { return strings.ReplaceAll(name, "_", " ") }

// Number reads the value of a label as a number; a duration counts in microseconds.
func Number(value string) (x float64, ok bool) {
	if x, err := strconv.ParseFloat(value, 64); err == nil {
		return x, true
	}
	if d, err := time.ParseDuration(value); err == nil {
		return float64(d) / float64(time.Microsecond), true
	}
	return 0, false
}

// LabelUnit is the unit of the numbers that Number returns for a label.
func LabelUnit(name string) archive.Unit {
	switch name {
	case archive.LabelValueBytes:
		return archive.UnitBytes
	case archive.LabelFsyncDelay, archive.LabelNetworkDelay:
		return archive.UnitMicroseconds
	case archive.LabelBandwidth:
		return archive.UnitBytesPerSecond
	case archive.LabelRate:
		return archive.UnitPerSecond
	}
	return archive.UnitCount
}

// NumericLabels lists the varying labels whose values are all numbers: those that can be an axis.
func (v *View) NumericLabels() []string {
	return slices.DeleteFunc(slices.Clone(v.Varying), func(name string) bool {
		for i := range v.Run.Points {
			if value, has := v.Run.Points[i].Labels[name]; has {
				if _, ok := Number(value); !ok {
					return true
				}
			}
		}
		return false
	})
}

// LoadLabels lists the varying labels that are a load: clients, rate, or both.
func (v *View) LoadLabels() []string {
	return slices.DeleteFunc(slices.Clone(v.Varying), func(name string) bool { return !slices.Contains(loadLabels, name) })
}

// Typical returns the point that stands for a family and its repeat; both are nil if no repeat was whole.
func (f Family) Typical() (*archive.Point, *archive.Repeat) {
	var best *archive.Point
	better := func(p *archive.Point) bool {
		if best == nil || Saturated(best) != Saturated(p) {
			return best == nil || Saturated(best)
		}
		have, _ := best.Median(archive.OpsPerSec.Name)
		found, _ := p.Median(archive.OpsPerSec.Name)
		return found > have
	}
	for _, p := range f.Points {
		if representative(p) != nil && better(p) {
			best = p
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, representative(best)
}

// representative returns the repeat with the median throughput, or the first whole one of a point that has
// no throughput.
func representative(p *archive.Point) *archive.Repeat {
	if r := p.Typical(archive.OpsPerSec.Name); r != nil {
		return r
	}
	for i := range p.Repeats {
		if !p.Repeats[i].Partial {
			return &p.Repeats[i]
		}
	}
	return nil
}

// Saturated reports whether more was offered than the target could do: its latency says how long the
// measurement was, and little else.
func Saturated(p *archive.Point) bool {
	return slices.ContainsFunc(p.AllWarnings(), func(w archive.Warning) bool { return w.Code == archive.WarnSaturated })
}

func sortedPairs(m map[string]string) [][2]string {
	var all [][2]string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, [2]string{k, m[k]})
	}
	return all
}
