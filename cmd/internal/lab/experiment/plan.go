package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// Plan is what a user asks for, by name. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	Log         string // a mode of durability of this log, as wal.ParseMode reads it; or etcd, pebble
	Engine      string // memory, pebble
	Transport   string // tcp, tcp+tls, grpc, loopback
	Pipelines   []string
	EarlyAck    bool // acknowledge at commit; else when the leader's state machine has applied it
	Groups      int
	Hosts       int
	ValueBytes  int
	Operation   string // write, or a way to read
	Clients     []int  // closed loop
	Rates       []float64
	MaxInFlight int
	FsyncDelay  time.Duration
	// DiskBandwidth is of the disk of each host, in bytes a second; 0: the real one's.
	DiskBandwidth int64
	NetDelay      time.Duration // one way
	Processes     bool          // each host in a process of its own, on this machine

	Duration  time.Duration
	MinWarmup time.Duration
	MaxWarmup time.Duration
	Repeats   int
}

// Write is the operation that is no reading.
const Write = "write"

// Names of the components.
var (
	pipelines  = map[string]pipeline.Pipeline{"basic": pipeline.Basic{}, "parallel": pipeline.Parallel{}, "clamped": pipeline.Clamped{}, "async": pipeline.Async{}}
	transports = []string{string(rig.TCP), string(rig.TLS), GRPC, string(rig.Loopback)}
	engines    = []string{memoryEngine, PebbleEngine}
	logs       = []string{EtcdLog, PebbleLog} // besides this one, in its modes

	// absentLogs are logs that the lab knows and does not have, with the reason and what does it.
	absentLogs = map[string]string{
		"bolt": "one fsync of bbolt commits several pages for each append: `millrace bench wal` measures it alone",
	}
)

const memoryEngine = "memory"

// Components of other projects' code. A program that has them gets them as a rig.Foreign.
const (
	EtcdLog      = "etcd"
	PebbleLog    = "pebble"
	PebbleEngine = "pebble"
	GRPC         = "grpc"
)

// ForeignNames names the components of plans that are other projects' code, for people; "": there are none.
func ForeignNames(plans []Plan) string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, p := range plans {
		if slices.Contains(logs, p.Log) {
			add("the log " + p.Log)
		}
		if p.Engine == PebbleEngine {
			add("the engine " + p.Engine)
		}
		if p.Transport == GRPC {
			add("the transport " + p.Transport)
		}
	}
	return strings.Join(names, " and ")
}

// mode returns the mode of durability. A foreign log has one, in which what counts is durable.
func (p Plan) mode() (wal.Mode, error) {
	if slices.Contains(logs, p.Log) {
		return wal.ModeGroup, nil
	}
	mode, err := wal.ParseMode(p.Log)
	if err != nil {
		return mode, lab.Invalid("Log", "%v; or choose from %s", err, strings.Join(logs, ", "))
	}
	return mode, nil
}

// PipelineNames are the pipelines, the simplest first.
var PipelineNames = []string{"basic", "parallel", "clamped", "async"}

// Bounds of a plan, besides those of package lab.
const (
	maxGroups   = 10_000
	maxDelay    = 10 * time.Second
	maxInFlight = 1_000_000
	maxRate     = 10_000_000
	maxWarmup   = time.Hour
	maxLength   = time.Hour // the memory of a timeline is bounded

	minBandwidth = 4_000_000 // a log writes a segment of zeros before it is of use
	maxBandwidth = 1_000_000_000_000
)

// choose refuses a name that is not one of those that there are.
func choose(field, what, name string, have []string) error {
	if slices.Contains(have, name) {
		return nil
	}
	return lab.Invalid(field, "unknown %s %q; choose from %s", what, name, strings.Join(have, ", "))
}

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid. A combination that cannot be is refused with the names of both fields.
func (p Plan) Validate() error {
	if why, known := absentLogs[p.Log]; known {
		return lab.Invalid("Log", "%s is not available: %s", p.Log, why)
	}
	mode, err := p.mode()
	if err != nil {
		return err
	}
	if err := choose("Engine", "engine", p.Engine, engines); err != nil {
		return err
	}
	if err := choose("Transport", "transport", p.Transport, transports); err != nil {
		return err
	}
	if len(p.Pipelines) == 0 {
		return lab.Invalid("Pipelines", "give at least one of %s", strings.Join(PipelineNames, ", "))
	}
	for _, name := range p.Pipelines {
		if err := choose("Pipelines", "pipeline", name, PipelineNames); err != nil {
			return err
		}
		if err := p.fits(name, mode); err != nil {
			return err
		}
	}
	if err := p.validateNumbers(); err != nil {
		return err
	}
	return p.validateLoad()
}

// fits refuses a pipeline that cannot go with another setting.
func (p Plan) fits(name string, mode wal.Mode) error {
	synchronous := !pipelines[name].AsyncStorageWrites()
	switch {
	case name != "async" && p.Groups > 1:
		return lab.Invalid("Pipelines", "%s is for comparison, on one group of fixed members, and {Groups} is %d: choose async alone, or one group", name, p.Groups)
	case name == "clamped" && !p.EarlyAck:
		return lab.Invalid("Pipelines", "clamped is a rule for when to acknowledge, and {EarlyAck} is off, which is another one: choose one of them")
	case synchronous && p.Operation == string(rig.ByLease):
		return lab.Invalid("Operation", "lease reads need the append lane of {Pipelines} async or clamped, and %s has none", name)
	case mode.Kind == wal.KindMemory && p.FsyncDelay > 0:
		return lab.Invalid("FsyncDelay", "%v has no effect with {Log} memory, which never syncs: choose another log, or 0", p.FsyncDelay)
	case mode.Kind == wal.KindMemory && p.DiskBandwidth > 0:
		return lab.Invalid("DiskBandwidth", "%d has no effect with {Log} memory, which writes nothing: choose another log, or 0", p.DiskBandwidth)
	}
	return nil
}

func (p Plan) validateNumbers() error {
	switch {
	case p.Groups < 1 || p.Groups > maxGroups:
		return lab.Invalid("Groups", "%d is not between 1 and %d", p.Groups, maxGroups)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > load.MaxValueBytes:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, load.MinValueBytes, load.MaxValueBytes)
	case p.FsyncDelay < 0 || p.FsyncDelay > maxDelay:
		return lab.Invalid("FsyncDelay", "%v is not between 0 and %v", p.FsyncDelay, maxDelay)
	case p.DiskBandwidth != 0 && (p.DiskBandwidth < minBandwidth || p.DiskBandwidth > maxBandwidth):
		return lab.Invalid("DiskBandwidth", "%d is neither 0, which is no bound, nor between %d and %d bytes a second", p.DiskBandwidth, minBandwidth, int64(maxBandwidth))
	case p.NetDelay < 0 || p.NetDelay > maxDelay:
		return lab.Invalid("NetDelay", "%v is not between 0 and %v", p.NetDelay, maxDelay)
	case p.NetDelay > 0 && p.Transport == string(rig.Loopback):
		return lab.Invalid("NetDelay", "%v needs sockets, and {Transport} loopback has none: choose tcp", p.NetDelay)
	case p.Processes && ForeignNames([]Plan{p}) != "":
		return lab.Invalid("Processes", "hosts in processes of their own are this program, and %s is in another one: choose components of this one", ForeignNames([]Plan{p}))
	case p.Processes && p.Transport == string(rig.Loopback):
		return lab.Invalid("Processes", "hosts in processes of their own need sockets, and {Transport} loopback is memory within one process: choose tcp or tcp+tls")
	case p.NetDelay > 0 && p.Hosts == 1:
		return lab.Invalid("NetDelay", "%v has no effect with {Hosts} 1, which sends nothing", p.NetDelay)
	case p.Duration <= 0 || p.Duration > maxLength:
		return lab.Invalid("Duration", "%v is not between 1ns and %v", p.Duration, maxLength)
	case p.MinWarmup < 0 || p.MinWarmup > p.MaxWarmup:
		return lab.Invalid("MinWarmup", "%v is not between 0 and {MaxWarmup}, which is %v", p.MinWarmup, p.MaxWarmup)
	case p.MaxWarmup > maxWarmup:
		return lab.Invalid("MaxWarmup", "%v is more than %v", p.MaxWarmup, maxWarmup)
	case p.Repeats < 1 || p.Repeats > 100:
		return lab.Invalid("Repeats", "%d is not between 1 and 100", p.Repeats)
	}
	return nil
}

func (p Plan) validateLoad() error {
	if p.Operation != Write {
		r, err := rig.ParseReading(p.Operation)
		if err != nil {
			return lab.Invalid("Operation", "unknown operation %q; choose write, or read by one of %s", p.Operation, quoted(rig.AllReadings))
		}
		if r == rig.ByFollower && p.Hosts == 1 {
			return lab.Invalid("Operation", "follower needs a follower, and {Hosts} is 1")
		}
	}
	if len(p.Clients) == 0 && len(p.Rates) == 0 {
		return lab.Invalid("Clients", "give at least one number of clients, or a rate")
	}
	for _, c := range p.Clients {
		if c < 1 || c > lab.MaxClients {
			return lab.Invalid("Clients", "%d is not between 1 and %d", c, lab.MaxClients)
		}
	}
	for _, r := range p.Rates {
		if !(r > 0 && r <= maxRate) {
			return lab.Invalid("Rates", "%v is not between 0 and %d operations a second", r, maxRate)
		}
	}
	if p.MaxInFlight < 1 || p.MaxInFlight > maxInFlight {
		return lab.Invalid("MaxInFlight", "%d is not between 1 and %d", p.MaxInFlight, maxInFlight)
	}
	return nil
}

func quoted[T ~string](names []T) string {
	var all []string
	for _, n := range names {
		all = append(all, strconv.Quote(string(n)))
	}
	return strings.Join(all, ", ")
}

// Points lists what one round measures. The plan must be valid, and foreign must have its foreign
// components.
func (p Plan) Points(foreign rig.Foreign) (all []Point) {
	mode, _ := p.mode() // Validate has seen it
	components := rig.Setup{Durability: mode, Foreign: foreign}
	if slices.Contains(logs, p.Log) {
		components.Log = p.Log
	}
	if p.Engine != memoryEngine {
		components.Engine = p.Engine
	}
	for _, name := range p.Pipelines {
		setup := components
		setup.Hosts, setup.Groups, setup.Transport, setup.Pipeline = p.Hosts, p.Groups, rig.Transport(p.Transport), pipelines[name]
		setup.LateAcknowledgement, setup.Leases = !p.EarlyAck, p.Operation == string(rig.ByLease)
		setup.FsyncDelay, setup.DiskBandwidth, setup.NetworkDelay = p.FsyncDelay, p.DiskBandwidth, p.NetDelay
		if p.Processes {
			setup.Processes = "local"
		}
		of := Point{Setup: setup, ValueBytes: p.ValueBytes, Length: p.Duration, Warmup: Steady(p.MinWarmup, p.MaxWarmup), MaxInFlight: p.MaxInFlight}
		if p.Operation != Write {
			of.Reading = rig.Reading(p.Operation)
		}
		for _, c := range p.Clients {
			pt := of
			pt.Clients = c
			all = append(all, pt.Named(name))
		}
		for _, r := range p.Rates {
			pt := of
			pt.Rate = r
			all = append(all, pt.Named(name))
		}
	}
	return all
}

// Labels returns the labels of a setup.
func Labels(s rig.Setup, pipeline string) map[string]string {
	l := map[string]string{
		archive.LabelPipeline: pipeline, archive.LabelLog: cmp.Or(s.Log, "millrace/"+s.Durability.String()), archive.LabelEngine: cmp.Or(s.Engine, memoryEngine),
		archive.LabelTransport: string(s.Transport), archive.LabelProcesses: cmp.Or(s.Processes, "one"), archive.LabelNodes: strconv.Itoa(s.Hosts),
		archive.LabelGroups: strconv.Itoa(max(s.Groups, 1)),
	}
	if s.FsyncDelay > 0 {
		l[archive.LabelFsyncDelay] = s.FsyncDelay.String()
	}
	if s.DiskBandwidth > 0 {
		l[archive.LabelBandwidth] = strconv.FormatInt(s.DiskBandwidth, 10)
	}
	if s.NetworkDelay > 0 {
		l[archive.LabelNetworkDelay] = s.NetworkDelay.String()
	}
	if s.LateAcknowledgement {
		l["acknowledge"] = "applied"
	}
	return l
}

// PipelineName returns the name of a pipeline in plans and labels.
func PipelineName(p pipeline.Pipeline) string {
	for name, of := range pipelines {
		if of == p {
			return name
		}
	}
	return fmt.Sprint(p.Name())
}
