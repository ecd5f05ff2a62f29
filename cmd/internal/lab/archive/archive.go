// Package archive is the directory that one run of the lab leaves behind. No other package knows its files:
//
//	result.json   what was asked for and what was measured: Run, in this file. Schema says its version
//	env.json      where: Environments (environment.go)
//	bench.txt     the figures again, in the format of Go's benchmarks, so that benchstat reads them (bench.go)
//	NAME.hlog     the latencies of one repeat, one histogram a second and operation (histogram.go)
//
// A run writes with a Writer (writer.go), which replaces result.json after each repeat. A run that is
// killed leaves what was finished, marked as partial. Resume (resume.go) opens it for the rest. Reports and
// comparisons use Read (read.go). Both sides go through Validate (validate.go), so what can be written can
// be read, and a file that was edited by hand is refused with a sentence.
//
// Rejected: one file for everything. result.json would be megabytes of histograms that no eye and no jq
// wants. Rejected: one schema for each recipe. A reader would have to know all recipes. A point is a map of
// labels and its repeats are maps of figures. Each figure's name is declared in the file with its unit and
// its better direction (metric.go), so that a report or a comparison needs to know no recipe.
package archive

import "time"

// Schema is the version of the files. A reader refuses every other one.
const Schema = "millrace-lab/1"

// Run is what one call of the lab measured. Times in it are of the machine that put the load on.
type Run struct {
	Schema  string            `json:"schema"`  // set by Writer.Save
	Recipe  string            `json:"recipe"`  // such as "rafttoy"; one word, as typed
	Summary string            `json:"summary"` // one sentence: the question that the recipe asks
	Command []string          `json:"command"` // the command line that does it again, program first
	Config  map[string]string `json:"config"`  // every setting in effect, defaults included, named by flag
	Seed    uint64            `json:"seed"`    // from which all others follow
	Began   time.Time         `json:"began"`
	Ended   time.Time         `json:"ended"` // of the last repeat so far
	Partial bool              `json:"partial"`
	Omitted []string          `json:"omitted"` // what a shortened run leaves out, a sentence each

	Metrics    []Metric    `json:"metrics"`    // of every figure and every series; see Writer.Save
	Points     []Point     `json:"points"`     // in the order of the report
	Criteria   []Criterion `json:"criteria"`   // what the recipe demands
	References []Reference `json:"references"` // figures of the source
	Warnings   []Warning   `json:"warnings"`   // about all points
}

// Point is one target under one load, measured once for each repeat. Its labels identify it: two runs compare
// the points that have the same ones.
type Point struct {
	Name     string            `json:"name"`   // for people, unique in the run: "async, 100 clients"
	Labels   map[string]string `json:"labels"` // see Label…
	Repeats  []Repeat          `json:"repeats"`
	Warnings []Warning         `json:"warnings"`
}

// Labels that reports know. A recipe may add its own. Durations are as time.Duration prints them, numbers are
// decimal without separators; a label that does not apply is left out.
const (
	LabelPipeline     = "pipeline"       // basic, parallel, clamped, async; bare for the baseline
	LabelLog          = "log"            // millrace/group, memory, etcd, pebble, …
	LabelEngine       = "engine"         // memory, pebble
	LabelTransport    = "transport"      // tcp, tcp+tls, grpc, loopback
	LabelProcesses    = "processes"      // one, local, remote
	LabelNodes        = "nodes"          // voters
	LabelGroups       = "groups"         // replicated logs on the same hosts
	LabelClients      = "clients"        // closed loop: writes outstanding
	LabelRate         = "rate"           // open loop: operations a second that are offered
	LabelValueBytes   = "value_bytes"    // of one write
	LabelOperation    = "operation"      // write, read-index, lease, follower, local, …
	LabelFsyncDelay   = "fsync_delay"    // added to each fsync
	LabelBandwidth    = "disk_bandwidth" // bytes a second of each disk
	LabelNetworkDelay = "network_delay"  // added to each message, one way
)

// Repeat is one measurement of a point.
type Repeat struct {
	Order    int       `json:"order"` // place among all repeats of the run, in the order in which they ran
	Seed     uint64    `json:"seed"`
	Began    time.Time `json:"began"`
	Phases   []Phase   `json:"phases"`
	Partial  bool      `json:"partial"`  // was cut short; such a repeat is in no median
	HasDrift bool      `json:"drift"`    // the last third of the measurement differs from the first
	Warnings []Warning `json:"warnings"` // about this repeat alone

	// Figures are of the phase "measure", by the names of metrics.
	Figures map[string]float64 `json:"figures"`
	// Errors counts operations that failed, by the kind of failure. They are in no latency.
	Errors map[string]uint64 `json:"errors"`
	Series []Series          `json:"series"`
	// Histograms is the name of the file with this repeat's latencies; "" without any.
	Histograms string `json:"histograms"`
}

// Names of phases that reports know. A recipe may have others, such as "without a leader".
const (
	PhasePreload = "preload"
	PhaseWarmup  = "warm-up"
	PhaseMeasure = "measure"
	PhaseDrain   = "drain"
)

// Phase is a stretch [FromSec, ToSec) of a repeat, in seconds since it began.
type Phase struct {
	Name    string  `json:"name"`
	FromSec float64 `json:"from_s"`
	ToSec   float64 `json:"to_s"`
}

// Series is what was sampled at a fixed interval. All columns have the same length. Sample i covers the time
// from FromSec + i*IntervalSec, in seconds since the repeat began.
type Series struct {
	Source      string            `json:"source"` // "all", "load", "member 1": whose figures these are
	FromSec     float64           `json:"from_s"`
	IntervalSec float64           `json:"interval_s"`
	Columns     map[string]Values `json:"columns"` // by the names of metrics
}

// SourceAll is the source of a series about the whole target and its clients together.
const SourceAll = "all"

// Verdict is how a criterion ended.
type Verdict string

// The verdicts.
const (
	Pass        Verdict = "pass"
	Fail        Verdict = "fail"
	NotMeasured Verdict = "not-measured"
	Provisional Verdict = "provisional" // the limit has no ground yet: the note says why
)

// Criterion is one demand of a recipe, evaluated.
type Criterion struct {
	Name    string   `json:"name"`  // "p99 with one follower stopped"
	Point   string   `json:"point"` // name of the point that it is about; "" for the run
	Limit   string   `json:"limit"` // for people: "≤ 1.5 × before"
	Value   *float64 `json:"value"` // null if it was not measured
	Unit    Unit     `json:"unit"`
	Verdict Verdict  `json:"verdict"`
	Note    string   `json:"note"` // why it was not measured, or what bounds it; may be empty
}

// Reference is one figure of a source, with ours beside it.
type Reference struct {
	Source string   `json:"source"` // "thesis, figure 10.3"
	What   string   `json:"what"`   // "5 servers, 100 clients: writes a second"
	Unit   Unit     `json:"unit"`
	Theirs *float64 `json:"theirs"` // null if the source gives no number: the note says what it does say
	Ours   *float64 `json:"ours"`   // null if this run has not measured it
	Point  string   `json:"point"`  // name of the point that ours comes from; "" for none
	Note   string   `json:"note"`
}

// Warning is a reason not to trust figures, or not to compare them. It is shown wherever they are.
type Warning struct {
	Code string `json:"code"` // see Warn…
	Text string `json:"text"` // a sentence with the numbers
}

// Codes of warnings. Those in Labelling say that figures are not of a durable system on a real network, and
// every output carries them.
const (
	WarnNotDurable     = "not-durable"     // no fsync before an acknowledgement
	WarnTmpfs          = "tmpfs"           // the files are in memory
	WarnInMemory       = "in-memory"       // the transport or the log is memory
	WarnFake           = "injected"        // latency was injected into disk or network
	WarnBusy           = "busy-machine"    // others used the machine
	WarnClientCPU      = "client-cpu"      // the load generator had no processor time to spare
	WarnGeneratorBound = "generator-bound" // the generator's own lateness is a visible part of the latency
	WarnSaturated      = "saturated"       // more was offered than the target can do
	WarnFailures       = "failures"        // some operations failed
	WarnMemberGone     = "member-gone"     // a member was away, or its process is a new one: the figures are not of the whole cluster
	WarnLeaderMoved    = "leader-moved"    // another host led than at first: calls of that one were forwarded
	WarnNotSteady      = "not-steady"      // the warm-up ended before the figures had settled
	WarnDrift          = "drift"           // the last third differs from the first
	WarnPartial        = "partial"         // the run was cut short
	WarnResumed        = "resumed"         // the run was cut short, and made in several parts
)

// Labelling lists the codes that belong beside each figure, whatever the output. A reader of the figure has
// to know that it is not of a durable system on a real network.
func Labelling() []string { return []string{WarnNotDurable, WarnTmpfs, WarnInMemory, WarnFake} }
