package remote

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/transport/cert"
)

// Components are what the members of one cluster are made of. All members must have the same.
type Components struct {
	Log         string // as in experiment.Plan, as are the next ones
	Engine      string
	Transport   string
	Pipeline    string // one of experiment.PipelineNames
	EarlyAck    bool
	Groups      int
	Depth       int
	FsyncDelay  time.Duration
	Bandwidth   int64 // experiment.Plan.DiskBandwidth
	NetDelay    time.Duration
	Leases      bool // leaders may answer reads without asking
	SnapshotMiB int  // the log grows by so much between two snapshots; 0: there are none, and the log keeps all
}

// MemberPlan is what one member is told.
type MemberPlan struct {
	Components
	ID           uint64 // 0: the name of this machine ends with -N, and the id is N + 1
	Members      []string
	Dir          string // exists; the member's files are in host-ID below it, and stay
	Listen       string // for the other members
	Loads        string // where loads connect
	Health       string // where health checks connect; "": they cannot
	Certificates string // directory, see trust.go; "": plain TCP
	Insecure     bool   // plain TCP may leave this machine
	Probe        time.Duration
	For          time.Duration // once it is ready, it ends by itself after this; 0: it does not
}

// FromInput is the address of each member if they come on the standard input: one line, a list in JSON, once
// all members listen. The member ends when its input does.
const FromInput = "-"

func (p MemberPlan) fromInput() bool { return slices.Contains(p.Members, FromInput) }

// Experiment returns the components of some members as a plan, for a load of one client.
func (c Components) Experiment(members int) experiment.Plan {
	return experiment.Plan{
		Log: c.Log, Engine: c.Engine, Transport: c.Transport, Pipelines: []string{c.Pipeline}, EarlyAck: c.EarlyAck, Groups: c.Groups,
		Hosts: members, Depth: c.Depth, FsyncDelay: c.FsyncDelay, DiskBandwidth: c.Bandwidth, NetDelay: c.NetDelay,
		ValueBytes: load.MinValueBytes, Operation: experiment.Write, Clients: []int{1}, MaxInFlight: 1, Duration: time.Second, Repeats: 1,
	}
}

// ComponentsOf returns the components of a setup. A setup that says more than components do is refused: it
// must not be left out silently.
func ComponentsOf(s rig.Setup) (Components, error) {
	c := Components{
		Log: s.Durability.String(), Engine: "memory", Transport: string(s.Transport), Pipeline: experiment.PipelineName(s.Pipeline),
		EarlyAck: !s.LateAcknowledgement, Groups: max(s.Groups, 1), FsyncDelay: s.FsyncDelay, Bandwidth: s.DiskBandwidth, NetDelay: s.NetworkDelay, Leases: s.Leases,
	}
	if depth, ok := s.Rule.(batches.Depth); ok {
		c.Depth = int(depth)
	}
	back := c.Experiment(s.Hosts).Points(rig.Foreign{})[0].Setup
	s.Groups = max(s.Groups, 1)
	back.Dir, back.Leases, back.Processes = s.Dir, s.Leases, s.Processes
	have, want := reflect.ValueOf(back), reflect.ValueOf(s)
	for i := range have.NumField() {
		if !reflect.DeepEqual(have.Field(i).Interface(), want.Field(i).Interface()) {
			return c, lab.Invalid("Processes", "a host in a process of its own cannot be given %s, which is %v", have.Type().Field(i).Name, want.Field(i).Interface())
		}
	}
	return c, nil
}

// setup returns what the member is made of. The plan must be valid.
func (p MemberPlan) setup() rig.Setup {
	s := p.Experiment(len(p.Members)).Points(rig.Foreign{})[0].Setup
	s.Dir, s.Leases = p.Dir, p.Leases
	if p.SnapshotMiB > 0 {
		s.Snapshots = host.SnapshotPolicy{LogBytes: int64(p.SnapshotMiB) << 20}
	}
	return s
}

// Differences lists what differs between the components of two members, a phrase each.
func (c Components) Differences(other Components) (all []string) {
	mine, theirs := c.byName(), other.byName()
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		if mine[name] != theirs[name] {
			all = append(all, fmt.Sprintf("%s is %s and %s", name, mine[name], theirs[name]))
		}
	}
	return all
}

func (c Components) byName() map[string]string {
	return map[string]string{
		"the log": c.Log, "the engine": c.Engine, "the transport": c.Transport, "the pipeline": c.Pipeline,
		"early acknowledgement": strconv.FormatBool(c.EarlyAck), "the number of groups": strconv.Itoa(c.Groups),
		"the depth": strconv.Itoa(c.Depth), "the bandwidth of disks": strconv.FormatInt(c.Bandwidth, 10),
		"the delay of fsyncs": c.FsyncDelay.String(), "the delay of the network": c.NetDelay.String(),
		"leases": strconv.FormatBool(c.Leases), "the MiB of log between snapshots": strconv.Itoa(c.SnapshotMiB),
	}
}

// cluster returns the number of the cluster of some members.
func cluster(members []string) uint64 {
	h := fnv.New64a()
	for _, addr := range members {
		_, _ = fmt.Fprintf(h, "%q", addr) // it never fails
	}
	return h.Sum64() | 1 // not 0
}

const maxFor = 30 * 24 * time.Hour

// Validate returns the first reason why the member cannot run, and fills in its id.
func (p *MemberPlan) Validate() error {
	if p.Transport == string(rig.Loopback) {
		return lab.Invalid("Transport", "loopback is memory within one process: members in processes of their own need tcp or tcp+tls")
	}
	if foreign := experiment.ForeignNames([]experiment.Plan{p.Experiment(len(p.Members))}); foreign != "" {
		return lab.Invalid("Log", "%s is in another program, which `millrace lab measure` builds: a member has the components of this one", foreign)
	}
	if err := p.Experiment(len(p.Members)).Validate(); err != nil {
		return renamed(err)
	}
	if err := p.validateID(); err != nil {
		return err
	}
	switch {
	case p.Leases && (p.Pipeline == "basic" || p.Pipeline == "parallel"):
		return lab.Invalid("Leases", "they need the append lane of {Pipeline} async or clamped, and %s has none", p.Pipeline)
	case p.SnapshotMiB < 0 || p.SnapshotMiB > 1<<20:
		return lab.Invalid("SnapshotMiB", "%d is not between 0 and %d", p.SnapshotMiB, 1<<20)
	case p.SnapshotMiB > 0 && p.Pipeline != "async":
		return lab.Invalid("SnapshotMiB", "the pipeline %s is for comparison and takes no snapshots: choose 0", p.Pipeline)
	case p.Probe < 0 || p.Probe > time.Minute:
		return lab.Invalid("Probe", "%v is not between 0 and %v", p.Probe, time.Minute)
	case p.For < 0 || p.For > maxFor:
		return lab.Invalid("For", "%v is not between 0 and %v", p.For, maxFor)
	case p.Dir == "":
		return lab.Invalid("Dir", "give the directory in which the member keeps its files")
	case (p.Transport == string(rig.TLS)) != (p.Certificates != ""):
		return lab.Invalid("Certificates", "{Transport} %s and a directory of certificates do not go together: give both, or tcp and none", p.Transport)
	}
	return p.validateAddresses()
}

// renamed gives an error about a field of experiment.Plan the name that the field has here.
func renamed(err error) error {
	var refused *lab.FieldError
	if !errors.As(err, &refused) {
		return err
	}
	here := strings.NewReplacer("Pipelines", "Pipeline", "Hosts", "Members", "DiskBandwidth", "Bandwidth")
	return lab.Invalid(here.Replace(refused.Field), "%s", here.Replace(refused.Reason))
}

var ordinal = regexp.MustCompile(`-([0-9]{1,4})$`)

func (p *MemberPlan) validateID() error {
	if p.ID == 0 {
		name, err := os.Hostname()
		if err != nil {
			return lab.Cannot("ID", "this machine has no name from which it could follow: %v", err)
		}
		if p.ID = idOf(name); p.ID == 0 {
			return lab.Invalid("ID", "give it: this machine is called %q, which does not end with - and a number", name)
		}
	}
	if p.ID > uint64(len(p.Members)) {
		return lab.Invalid("ID", "%d, and {Members} names %d", p.ID, len(p.Members))
	}
	return nil
}

// idOf returns the id of the member on a machine with a name, as a StatefulSet names its pods, or 0.
func idOf(name string) uint64 {
	name, _, _ = strings.Cut(name, ".")
	m := ordinal.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseUint(m[1], 10, 64) // four digits
	return n + 1
}

func (p *MemberPlan) validateAddresses() error {
	dashes := 0
	seen := map[string]bool{}
	for _, addr := range p.Members {
		if addr == FromInput {
			dashes++
			continue
		}
		if err := validateAddr("Members", addr); err != nil {
			return err
		}
		if seen[addr] && len(p.Members) > 1 {
			return lab.Invalid("Members", "%s is there twice", addr)
		}
		seen[addr] = true
	}
	if dashes > 0 && dashes != len(p.Members) {
		return lab.Invalid("Members", "give all addresses, or a - for each of them")
	}
	if p.Listen == "" {
		if p.Listen = p.Members[p.ID-1]; p.Listen == FromInput {
			p.Listen = "127.0.0.1:0"
		}
	}
	for field, addr := range map[string]string{"Listen": p.Listen, "Loads": p.Loads, "Health": p.Health} {
		if addr == "" && field == "Health" {
			continue
		}
		if err := validateAddr(field, addr); err != nil {
			return err
		}
	}
	return p.rejectOpen()
}

func validateAddr(field, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return lab.Invalid(field, "%q is not HOST:PORT", addr)
	}
	return nil
}

// rejectOpen refuses plain TCP that others than this machine could reach.
func (p *MemberPlan) rejectOpen() error {
	if p.Certificates != "" || p.Insecure {
		return nil
	}
	for _, addr := range append([]string{p.Listen, p.Loads}, p.Members...) {
		if addr != FromInput && !IsLoopback(addr) {
			return lab.Invalid("Insecure", "%s can be reached from other machines, and every program there could read and forge everything: give {Certificates} and {Transport} tcp+tls, or set this flag on a network that only you use", addr)
		}
	}
	return nil
}

// credentials reads those of the member, nil for plain TCP.
func (p MemberPlan) credentials() (*cert.Credentials, error) {
	if p.Certificates == "" {
		return nil, nil
	}
	c, err := MemberCredentials(p.Certificates, p.ID)
	if err != nil {
		return nil, lab.Cannot("Certificates", "%v", err)
	}
	return c, nil
}
