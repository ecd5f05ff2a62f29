package experiment_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// good is a plan with everything in it, of a few milliseconds.
func good() experiment.Plan {
	return experiment.Plan{
		Log: "group", Engine: "memory", Transport: "tcp", Pipelines: []string{"async"}, EarlyAck: true, Groups: 1, Hosts: 3, ValueBytes: 64,
		Operation: experiment.Write, Clients: []int{2}, MaxInFlight: 100, Duration: 30 * time.Millisecond, MaxWarmup: 20 * time.Millisecond, Repeats: 2,
	}
}

// A plan that cannot be is refused with its field and a sentence. What the lab knows and does not have is
// refused by name, with the reason.
func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		field, want string
		spoil       func(*experiment.Plan)
	}{
		{"Log", `"fast" is unknown`, func(p *experiment.Plan) { p.Log = "fast" }},
		{"Log", "or choose from etcd, pebble", func(p *experiment.Plan) { p.Log = "fast" }},
		{"Log", "bolt is not available: one fsync of bbolt", func(p *experiment.Plan) { p.Log = "bolt" }},
		{"Engine", `unknown engine "x"; choose from memory, pebble`, func(p *experiment.Plan) { p.Engine = "x" }},
		{"Transport", "choose from tcp, tcp+tls, grpc, loopback", func(p *experiment.Plan) { p.Transport = "udp" }},
		{"Pipelines", "choose from basic, parallel, clamped, async", func(p *experiment.Plan) { p.Pipelines = []string{"turbo"} }},
		{"Pipelines", "at least one", func(p *experiment.Plan) { p.Pipelines = nil }},
		{"Pipelines", "{Groups} is 3", func(p *experiment.Plan) { p.Pipelines, p.Groups = []string{"async", "basic"}, 3 }},
		{"Pipelines", "{EarlyAck} is off", func(p *experiment.Plan) { p.Pipelines, p.EarlyAck = []string{"clamped"}, false }},
		{"FsyncDelay", "{Log} memory", func(p *experiment.Plan) { p.Log, p.FsyncDelay = "memory", 1 }},
		{"FsyncDelay", "not between", func(p *experiment.Plan) { p.FsyncDelay = -1 }},
		{"DiskBandwidth", "{Log} memory", func(p *experiment.Plan) { p.Log, p.DiskBandwidth = "memory", 1e9 }},
		{"DiskBandwidth", "1000 is neither 0, which is no bound, nor between 4000000", func(p *experiment.Plan) { p.DiskBandwidth = 1000 }},
		{"NetDelay", "{Transport} loopback", func(p *experiment.Plan) { p.Transport, p.NetDelay = "loopback", 1 }},
		{"NetDelay", "{Hosts} 1", func(p *experiment.Plan) { p.Hosts, p.NetDelay = 1, 1 }},
		{"NetDelay", "not between", func(p *experiment.Plan) { p.NetDelay = time.Hour }},
		{"Operation", "unknown operation", func(p *experiment.Plan) { p.Operation = "delete" }},
		{"Operation", "{Hosts} is 1", func(p *experiment.Plan) { p.Operation, p.Hosts = "follower", 1 }},
		{"Operation", "{Pipelines} async", func(p *experiment.Plan) { p.Operation, p.Pipelines = "lease", []string{"parallel"} }},
		{"Clients", "at least one", func(p *experiment.Plan) { p.Clients = nil }},
		{"Clients", "0 is not between", func(p *experiment.Plan) { p.Clients = []int{0} }},
		{"Rates", "not between", func(p *experiment.Plan) { p.Rates = []float64{-1} }},
		{"Groups", "0 is not", func(p *experiment.Plan) { p.Groups = 0 }},
		{"Hosts", "10 is not", func(p *experiment.Plan) { p.Hosts = 10 }},
		{"ValueBytes", "not between", func(p *experiment.Plan) { p.ValueBytes = 1 }},
		{"MaxInFlight", "not between", func(p *experiment.Plan) { p.MaxInFlight = 0 }},
		{"Duration", "not between", func(p *experiment.Plan) { p.Duration = 0 }},
		{"MinWarmup", "{MaxWarmup}", func(p *experiment.Plan) { p.MinWarmup = time.Minute }},
		{"MaxWarmup", "more than", func(p *experiment.Plan) { p.MaxWarmup = 2 * time.Hour }},
		{"Repeats", "not between", func(p *experiment.Plan) { p.Repeats = 0 }},
	} {
		p := good()
		tc.spoil(&p)
		err := p.Validate()
		var refused *lab.FieldError
		if !errors.As(err, &refused) || !errors.Is(err, lab.ErrInvalid) || refused.Field != tc.field || !strings.Contains(refused.Reason, tc.want) {
			t.Errorf("%s: %v, want %q", tc.field, err, tc.want)
		}
	}
	if err := good().Validate(); err != nil {
		t.Error(err)
	}
}

// Points have names and labels of their own.
func TestPoints(t *testing.T) {
	p := good()
	p.Pipelines, p.Clients, p.Rates = experiment.PipelineNames, []int{1, 16}, []float64{1000}
	names, keys := map[string]bool{}, map[string]bool{}
	for _, pt := range p.Points(rig.Foreign{}) {
		var b strings.Builder
		for _, l := range []string{"pipeline", "clients", "rate"} {
			b.WriteString(l + pt.Labels[l] + " ")
		}
		names[pt.Name], keys[b.String()] = true, true
		if pt.Labels["log"] != "millrace/group" || pt.Labels["operation"] != "write" || pt.Labels["nodes"] != "3" {
			t.Errorf("%s: %v", pt.Name, pt.Labels)
		}
	}
	if len(names) != 12 || len(keys) != 12 || !names["clamped, 16 clients"] || !names["basic, 1,000/s"] {
		t.Errorf("%v %v", names, keys)
	}
}
