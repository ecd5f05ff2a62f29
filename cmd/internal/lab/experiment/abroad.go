package experiment

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// Elsewhere is where the clusters of a session run, if not in this process.
type Elsewhere interface {
	// In calls f with a cluster of a setup whose machines have seen no write. dir is new, for files.
	In(ctx context.Context, dir string, setup rig.Setup, f func(Abroad) error) error
}

// Abroad is a cluster whose members run in processes of their own.
type Abroad interface {
	load.Abroad
	// Ledger is what the clients of this cluster know.
	Ledger() *load.Ledger
	// Reads returns the cluster as a target of reads, with the ledger of that.
	Reads(by rig.Reading) (load.Abroad, *load.Ledger, error)
	// Machines are where the members run, as it is now; none if it is the machine of the load.
	Machines() []archive.MemberEnvironment
	// Uses are what the members' processes have used by now.
	Uses() []Use
	// Remarks are what has happened to members since the last call, so that figures may not hold.
	Remarks() []archive.Warning
}

// Use is what the process of one member has used since a moment before the point, the same in all answers.
type Use struct {
	Member    string
	Process   load.Usage
	Counters  load.Counters
	PeakBytes int64 // of memory, since the point began
	HeapBytes float64
	OK        bool // the member has answered
}

// LoadCores is what the clients need besides the hosts.
var LoadCores = archive.Metric{Name: "load_cpu_cores", Unit: archive.UnitCores, Better: archive.BetterNeither, Meaning: "processor time in use by the process of the clients"}

// measureAbroad is Measure for a cluster whose members run elsewhere.
func (s *Session) measureAbroad(ctx context.Context, p Point) (r archive.Repeat, err error) {
	err = s.InFreshDir(func(dir string) error {
		s.Progress.Phase(archive.PhasePreload)
		return s.Elsewhere.In(ctx, dir, p.Setup, func(c Abroad) error {
			s.label(p.Setup)
			defer func() { s.recordMembers(c.Machines()) }()
			s.Declare(LoadCores)
			var target load.Abroad = c
			ledger := c.Ledger()
			if p.Reading != "" {
				if target, ledger, err = c.Reads(p.Reading); err != nil {
					return err
				}
			}
			t, err := s.observe(ctx, target, ledger, p, nil, c.Uses)
			if err != nil {
				return err
			}
			t.Repeat.Warnings = append(t.Repeat.Warnings, c.Remarks()...)
			r = t.Repeat
			return s.Keep(p, t)
		})
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", p.Name, err)
	}
	return r, err
}

// recordMembers notes where the members run, and the reasons that these machines give not to trust figures.
func (s *Session) recordMembers(all []archive.MemberEnvironment) {
	s.Env.Members = all
	for _, m := range all {
		for _, w := range MachineWarnings(m.Environment) {
			s.Warn(w.Code, "member %s: %s", m.Name, w.Text)
		}
	}
}

// abroad replaces what is known of the whole process by what the processes of the members have used.
func (m measured) abroad(f map[string]float64, perOp func(float64) float64) {
	seconds := m.Length.Seconds()
	f[LoadCores.Name] = f[archive.CPUCores.Name]
	f[archive.CPUUsPerOp.Name] = perOp(float64(m.Hosts.CPU.Nanoseconds()) / 1e3)
	f[archive.CPUCores.Name] = m.Hosts.CPU.Seconds() / seconds
	f[archive.AllocsPerOp.Name] = perOp(float64(m.Hosts.Allocs))
	f[archive.SwitchesPerOp.Name] = perOp(float64(m.Hosts.Switches))
}

// abroadSampler looks once a second at what the processes of the members use. A nil one does nothing.
type abroadSampler struct {
	uses    func() []Use
	last    []Use
	columns []map[string]archive.Values // by member
}

func newAbroadSampler(uses func() []Use) *abroadSampler {
	s := &abroadSampler{uses: uses, last: uses()}
	for range s.last {
		s.columns = append(s.columns, map[string]archive.Values{})
	}
	return s
}

// sample adds a second. A member that has not answered, or whose process is a new one, has no values for it.
func (s *abroadSampler) sample() {
	if s == nil {
		return
	}
	now := s.uses()
	for i, u := range now {
		before, columns := s.last[i], s.columns[i]
		add := func(m archive.Metric, x float64) {
			if !u.OK || !before.OK || u.Process.CPU < before.Process.CPU {
				x = math.NaN()
			}
			columns[m.Name] = append(columns[m.Name], x)
		}
		add(archive.CPUCores, (u.Process.CPU - before.Process.CPU).Seconds())
		add(archive.SwitchesPerSec, float64(u.Process.Switches)-float64(before.Process.Switches))
		add(archive.HeapBytes, u.HeapBytes)
		add(archive.FsyncsPerSec, float64(u.Counters.Fsyncs)-float64(before.Counters.Fsyncs))
		add(archive.DiskBytesPerSec, float64(u.Counters.FsyncBytes)-float64(before.Counters.FsyncBytes))
	}
	s.last = now
}

func (s *abroadSampler) end() {
	if s != nil {
		s.last = s.uses()
	}
}

func (s *abroadSampler) series() (all []archive.Series) {
	for i, u := range s.last {
		all = append(all, archive.Series{Source: "member " + u.Member, IntervalSec: sampleInterval.Seconds(), Columns: s.columns[i]})
	}
	return all
}

// figures adds what is known of the whole repeat.
func (s *abroadSampler) figures(f map[string]float64) {
	peak := int64(0)
	for _, u := range s.last {
		peak += u.PeakBytes
	}
	if peak > 0 {
		f[archive.RSSBytes.Name] = float64(peak)
	}
}
