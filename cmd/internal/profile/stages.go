// Package profile says which stage of a write used the processor. It reads the CPU profile of a process in
// which all hosts and the clients run. It sorts the stacks by the goroutine that ran, and by whether that was
// in the kernel.
package profile

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// The stages, in the order of the table.
const (
	Client  = "client"  // the load's goroutines: making a value, Propose, the ledger
	Turn    = "turn"    // a group's turn
	Append  = "lane"    // the append lane: encoding, writes, syncs
	Reader  = "reader"  // connections that read
	Writer  = "writer"  // what is sent, on whatever goroutine
	Apply   = "apply"   // the apply lane with the state machine
	Helper  = "helper"  // the log's helper, clocks, tickers
	Runtime = "runtime" // Go's scheduler and collector
	Other   = "other"
)

// Stages lists them.
func Stages() []string {
	return []string{Client, Turn, Append, Reader, Writer, Apply, Helper, Runtime, Other}
}

const module = "github.com/millrace/millrace/"

// rules say to which stage a stack belongs that has a function of this name. The first rule counts. A
// follower of bare reads and writes in one goroutine, which is a lane here.
var rules = []struct{ name, stage string }{
	{"cmd/internal/lab/load.(*client)", Client},
	{"host/internal/outbox.(*Batches).Flush", Writer},
	{"transport/tcp.(*link)", Writer},
	{"transport/tcp.(*line)", Writer},
	{"cmd/internal/lab/bench.(*bare).runSender", Writer},
	{"cmd/internal/lab/bench.(*bare).runAcks", Reader},
	{"transport/tcp.(*Transport).serve", Reader},
	{"cmd/internal/lab/bench.(*bare).runLeaderLog", Append},
	{"cmd/internal/lab/bench.(*bare).follow", Append},
	{"host/internal/appendlane.(*Lane).RunOnce", Append},
	{"host/internal/apply.(*Lane).RunOnce", Apply},
	{"host/internal/sched.(*Worker).RunOnce", Turn},
	{"wal.(*helper)", Helper},
	{"env.(*ticker)", Helper},
}

// stageOf returns the stage of a stack, and whether it was in the kernel.
func stageOf(stack []string) (stage string, kernel bool) {
	if len(stack) == 0 {
		return Other, false
	}
	kernel = isSystemCall(stack[0])
	for _, rule := range rules {
		if slices.ContainsFunc(stack, func(name string) bool { return strings.HasPrefix(name, module+rule.name) }) {
			return rule.stage, kernel
		}
	}
	if root := stack[len(stack)-1]; strings.HasPrefix(root, "runtime.") || strings.HasPrefix(root, "internal/runtime/") || strings.HasPrefix(root, "gcWriteBarrier") {
		return Runtime, kernel
	}
	return Other, kernel
}

// isSystemCall reports whether a function is where a goroutine enters the kernel. Page faults are not seen:
// they are in the function that touched the memory.
func isSystemCall(name string) bool {
	switch name {
	case "runtime.futex", "runtime.usleep", "runtime.write1", "runtime.madvise", "runtime.tgkill":
		return true
	}
	return strings.HasPrefix(name, "internal/runtime/syscall") || strings.HasPrefix(name, "syscall.RawSyscall") || strings.HasPrefix(name, "syscall.Syscall")
}

// Shares are the parts of the processor time of a load.
type Shares struct {
	Name    string              // of the load
	UsPerOp float64             // processor time an operation; 0: it is not known
	Time    map[string][2]int64 // nanoseconds by stage, of the program and in the kernel
	Samples int
}

// Of sorts samples by stage.
func Of(name string, usPerOp float64, samples []Sample) Shares {
	s := Shares{Name: name, UsPerOp: usPerOp, Time: map[string][2]int64{}, Samples: len(samples)}
	for _, x := range samples {
		stage, kernel := stageOf(x.Stack)
		t := s.Time[stage]
		if kernel {
			t[1] += x.Nanos
		} else {
			t[0] += x.Nanos
		}
		s.Time[stage] = t
	}
	return s
}

// total returns the time of all stages, of the program and in the kernel.
func (s Shares) total() (sum [2]int64) {
	for _, t := range s.Time {
		sum[0] += t[0]
		sum[1] += t[1]
	}
	return sum
}

// WriteTable writes a line for each stage. Each of all has three columns: the share of its processor time,
// the part of that in the kernel, and microseconds an operation.
func WriteTable(tw *tabwriter.Writer, title string, all []Shares) {
	fmt.Fprintf(tw, "%-36s", "processor time, "+title)
	for _, s := range all {
		fmt.Fprintf(tw, "\t%s\tkernel\tµs/op", s.Name)
	}
	fmt.Fprintln(tw, "\t")
	line := func(name string, of func(Shares) [2]int64) {
		fmt.Fprintf(tw, "  %-34s", name)
		for _, s := range all {
			sum, t := s.total(), of(s)
			whole := float64(max(1, sum[0]+sum[1]))
			share, kernel := float64(t[0]+t[1])/whole, float64(t[1])/whole
			fmt.Fprintf(tw, "\t%.1f %%\t%.1f %%\t%.2f", 100*share, 100*kernel, share*s.UsPerOp)
		}
		fmt.Fprintln(tw, "\t")
	}
	for _, stage := range Stages() {
		line(stage, func(s Shares) [2]int64 { return s.Time[stage] })
	}
	line("all", Shares.total)
}
