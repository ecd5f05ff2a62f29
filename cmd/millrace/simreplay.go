package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/host/flight"
)

var replayLong = `replay runs the inputs of a flight recorder through the core again, and says of each what came in and what the member did
because of it: how it judged appends and requests for votes and why, how its role, its term and its log changed, what left at
once and what waits for the disk. FILE is one of DIR/flight, which a host writes when a group stops by itself, when it is asked
(millrace flight, Host.DumpFlight), or what Host.WriteFlight has written (docs/operate/flight-recorder.md).

A replay proves itself. The core must ask its storage the recorded questions, hand out work with the recorded hashes, and be in
the recorded state wherever a stretch of the recording begins. Where it is not, replay says so, and goes on at the next stretch.
Replay with the version that recorded: another one may rightly do something else.

--from and --to choose the steps that are printed; everything is replayed. They are the number of a step, a time as
2026-11-25T22:10:00Z, or a time of the day as 22:10:00.5 (UTC). Times are counted in ticks, so they are exact to a few ticks.

JSON: one object on each line. A step: group, step, time, input, effects [..], differs, state {role, term, vote, leader, last,
durable, committed, applied}, entries [{index, term, type, bytes, crc}] that came in. The last line of each group: group, steps,
stretches, gaps, states, differences, broken.

` + replayExitHelp()

// replayStatuses says what the statuses mean for replay.
var replayStatuses = map[int]string{
	exitOK:      "done; the replay is exact",
	exitFailed:  "the replay differs from the recording",
	exitDamaged: "the file is damaged, cut off, or no recording",
	exitCannot:  "it cannot be read: no such file, no such group in it",
}

func replayExitHelp() string {
	return exitTable([]int{exitOK, exitFailed, exitDamaged, exitCannot, exitUsage, exitInterrupted}, func(e exitMeaning) string { return replayStatuses[e.status] })
}

// replayFlags is the command line of replay.
type replayFlags struct {
	group    uint64
	from, to string
	asJSON   bool
	quiet    bool
}

func newSimReplay(a app) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Explain, step by step, what a flight recorder has recorded", Long: replayLong, Args: wantArgs(1, "one file"),
		Example: `  millrace sim replay /var/lib/app/flight/000003.flight --quiet               is it exact? which groups, how many steps?
  millrace sim replay 000003.flight --group 7 --from 22:10:00 --to 22:10:05   five seconds of a group
  millrace sim replay 000003.flight --group 7 --from 41000 --json             a step and all after it, for a program`,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseBound(f.from, false)
			if err != nil {
				return seeHelp(cmd, fmt.Errorf("--from: %w", err))
			}
			to, err := parseBound(f.to, true)
			if err != nil {
				return seeHelp(cmd, fmt.Errorf("--to: %w", err))
			}
			return replay(cmd.Context(), a, args[0], &replaying{flags: f, from: from, to: to})
		},
	}
	cmd.Flags().Uint64Var(&f.group, "group", 0, "the group; 0 is all of them")
	cmd.Flags().StringVar(&f.from, "from", "", "the first step that is printed, or a time")
	cmd.Flags().StringVar(&f.to, "to", "", "the last step that is printed, or a time")
	cmd.Flags().BoolVar(&f.quiet, "quiet", false, "print what differs and how it ends, and no other step")
	jsonFlag(cmd, &f.asJSON)
	cmd.Flags().SortFlags = false
	return cmd
}

// bound is an end of what is printed: a step, a time, or a time of the day.
type bound struct {
	given bool
	upper bool
	step  int
	at    time.Time
	ofDay bool
}

func parseBound(text string, upper bool) (b bound, err error) {
	b = bound{given: text != "", upper: upper}
	if !b.given {
		return b, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		b.step = n
		return b, nil
	}
	if b.at, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return b, nil
	}
	if b.at, err = time.Parse("15:04:05.999999999", text); err == nil {
		b.ofDay = true
		return b, nil
	}
	return b, fmt.Errorf("%.40q is neither the number of a step (1 or more), nor a time as 2026-11-25T22:10:00Z, nor a time of the day as 22:10:00", text)
}

// excludes reports whether a step is beyond the bound.
func (b bound) excludes(s *flight.Step) bool {
	if !b.given {
		return false
	}
	order := s.Number - b.step
	if b.step == 0 {
		at, limit := s.At.UTC(), b.at.UTC()
		if b.ofDay {
			limit = time.Date(at.Year(), at.Month(), at.Day(), limit.Hour(), limit.Minute(), limit.Second(), limit.Nanosecond(), time.UTC)
		}
		order = at.Compare(limit)
	}
	return b.upper && order > 0 || !b.upper && order < 0
}

// replaying prints a replay.
type replaying struct {
	flags    replayFlags
	from, to bound
	out      *bufio.Writer
	broken   string // the last rule that a core of this group broke, or how it stopped
}

func replay(ctx context.Context, a app, path string, r *replaying) error {
	file, err := readFlight(path)
	if err != nil {
		return err
	}
	groups := file.Groups()
	if g := r.flags.group; g != 0 {
		if !slices.Contains(groups, g) {
			return cannot(fmt.Errorf("%s has no group %d; it has %v", path, g, groups))
		}
		groups = []uint64{g}
	}
	r.out = bufio.NewWriter(a.stdout)
	r.introduce(file)
	differences := 0
	for _, g := range groups {
		r.broken = ""
		result, err := flight.Replay(ctx, file, g, r.step)
		if err != nil {
			return r.ended(ctx, path, err)
		}
		differences += result.Differences
		r.sum(result)
	}
	if err := r.out.Flush(); err != nil {
		return cannot(err)
	}
	switch {
	case file.Cut:
		return statusError{exitDamaged, fmt.Errorf("%s is cut off: its end is missing, and what was before the cut was replayed", path)}
	case differences > 0:
		return statusError{exitFailed, errAnswered}
	}
	return nil
}

// ended returns the error of a replay that has ended early.
func (r *replaying) ended(ctx context.Context, path string, err error) error {
	if flushed := r.out.Flush(); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if flushed != nil {
		return cannot(flushed)
	}
	return statusError{exitDamaged, fmt.Errorf("%s: %w", path, err)}
}

func readFlight(path string) (*flight.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cannot(err)
	}
	defer f.Close()
	file, err := flight.Read(f)
	switch {
	case errors.Is(err, flight.ErrForeign), errors.Is(err, flight.ErrDamaged):
		return nil, statusError{exitDamaged, fmt.Errorf("%s: %w", path, err)}
	case err != nil:
		return nil, cannot(fmt.Errorf("%s: %w", path, err))
	}
	return file, nil
}

// introduce says where the recording comes from.
func (r *replaying) introduce(f *flight.File) {
	if r.flags.asJSON {
		return
	}
	m := f.Meta
	fmt.Fprintf(r.out, "host %d of cluster %d, version %s, written %s: %s\n", m.Host, m.Cluster, m.Version, time.UnixMilli(m.WallMillis).UTC().Format(time.RFC3339), m.Reason)
	if here := flight.Version(); here != m.Version {
		fmt.Fprintf(r.out, "this is version %s: where the versions differ, so may the replay\n", here)
	}
}

// step prints a step.
func (r *replaying) step(s *flight.Step) error {
	if s.Broken != "" {
		r.broken = s.Broken
	}
	if s.Differs == "" && (r.flags.quiet || r.from.excludes(s) || r.to.excludes(s)) {
		return nil
	}
	if r.flags.asJSON {
		return writeLine(r.out, jsonStepOf(s))
	}
	fmt.Fprintf(r.out, "\ngroup %d step %d  %s  %s\n", s.Group, s.Number, s.At.UTC().Format("15:04:05.000"), s.Input())
	for _, line := range s.Effects() {
		fmt.Fprintf(r.out, "    %s\n", line)
	}
	return nil
}

// sum prints what was replayed of a group.
func (r *replaying) sum(result flight.Result) {
	if r.flags.asJSON {
		_ = writeLine(r.out, jsonSum{result.Group, result.Steps, result.Stretches, result.Gaps, result.Checkpoints, result.Differences, r.broken})
		return
	}
	verdict := "the replay is exact"
	if n := result.Differences; n > 0 {
		verdict = fmt.Sprintf("THE REPLAY DIFFERS, in %d of the stretches", n)
	}
	fmt.Fprintf(r.out, "\ngroup %d: %d steps in %d stretches, %d gaps; work handed out %d times, states compared %d times: %s\n",
		result.Group, result.Steps, result.Stretches, result.Gaps, result.Ready, result.Checkpoints, verdict)
	if r.broken != "" {
		fmt.Fprintf(r.out, "group %d: its core stopped: %s\n", result.Group, r.broken)
	}
}

func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// The names of the JSON forms stay as they are.

type jsonStep struct {
	Group   uint64      `json:"group"`
	Step    int         `json:"step"`
	Time    time.Time   `json:"time"`
	Input   string      `json:"input"`
	Effects []string    `json:"effects"`
	Differs string      `json:"differs,omitempty"`
	State   jsonState   `json:"state"`
	Entries []jsonEntry `json:"entries,omitempty"`
}

type jsonState struct {
	Role      string `json:"role"`
	Term      uint64 `json:"term"`
	Vote      uint64 `json:"vote"`
	Leader    uint64 `json:"leader"`
	Last      uint64 `json:"last"`
	Durable   uint64 `json:"durable"`
	Committed uint64 `json:"committed"`
	Applied   uint64 `json:"applied"`
}

type jsonEntry struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Type  string `json:"type"`
	Bytes int    `json:"bytes"`
	CRC   string `json:"crc,omitempty"`
}

type jsonSum struct {
	Group       uint64 `json:"group"`
	Steps       int    `json:"steps"`
	Stretches   int    `json:"stretches"`
	Gaps        int    `json:"gaps"`
	States      int    `json:"states"`
	Differences int    `json:"differences"`
	Broken      string `json:"broken,omitempty"`
}

func jsonStepOf(s *flight.Step) jsonStep {
	st := &s.After
	j := jsonStep{Group: s.Group, Step: s.Number, Time: s.At.UTC(), Input: s.Input(), Effects: s.Effects(), Differs: s.Differs,
		State: jsonState{s.After.Role(), st.Term, st.Vote, st.Lead, st.LastIndex, st.Durable, st.Commit, st.Applied}}
	if j.Effects == nil {
		j.Effects = []string{}
	}
	for i, e := range s.Record.Message.Entries {
		x := jsonEntry{Index: e.Index, Term: e.Term, Type: e.Type.String(), Bytes: len(e.Data)}
		if i < len(s.Record.Hashes) && len(e.Data) > 0 {
			x.CRC = fmt.Sprintf("%08x", s.Record.Hashes[i])
		}
		j.Entries = append(j.Entries, x)
	}
	return j
}
