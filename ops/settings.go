package ops

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace"
)

// A setting has one name, in four places. From weak to strong: its default, a YAML file, the environment, the
// command line.
//
//	--election-timeout 2s     MILLRACE_ELECTION_TIMEOUT=2s     election-timeout: 2s
//
// All four go through the same flag.Value. So a setting has one syntax, and a bad value has one sentence,
// which says where the value was. An unknown name is an error: a misspelled setting must not be silently the
// default.

// EnvironmentPrefix begins the names of settings in the environment.
const EnvironmentPrefix = "MILLRACE_"

// Settings are the settings of a process: those of a node, those of its operation, and what the program adds
// to Flags before Parse.
type Settings struct {
	// Config is for millrace.Open, after Parse. What a program sets before Parse is a default.
	Config millrace.Config
	// Flags has every setting. Programs add their own before Parse.
	Flags *flag.FlagSet

	// Listen is the address for the pages of Handler; "" serves none.
	Listen string
	// Public allows Listen to be reached by other machines.
	Public bool
	// Pprof and HostOnly are those of Options.
	Pprof, HostOnly bool
	// StopDelay and StopTimeout are those of Service.
	StopDelay, StopTimeout time.Duration

	file, tokenFile string
	print           bool
	tls             millrace.TLS
	output          io.Writer
	sources         map[string]string // where each setting that was given was found
}

// ErrPrinted is returned by Settings.Parse when the command line asked for help or for the settings, and they
// were printed. The process should end, and has not failed.
var ErrPrinted = errors.New("ops: printed what was asked for")

// UsageError is an error in the settings. Main ends with StatusUsage for it.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// NewSettings returns the settings of a program with this name, with their defaults.
func NewSettings(name string) *Settings {
	s := &Settings{output: os.Stdout, sources: map[string]string{}}
	s.Flags = flag.NewFlagSet(name, flag.ContinueOnError)
	s.Flags.SetOutput(io.Discard) // Parse returns the error, and prints the help
	f, c := s.Flags, &s.Config
	c.StageTimes = true
	f.StringVar(&s.file, "config", "", "a YAML `file` with settings; flags and the environment win over it")
	f.BoolVar(&s.print, "print-config", false, "print all settings as such a file, with where each comes from, and end")

	f.Uint64Var(&c.ID, "id", 0, "this member's `number` in members; it belongs to its directory forever")
	f.StringVar(&c.Dir, "dir", "", "this member's `directory`; it is made if missing")
	f.Var((*addresses)(&c.Members), "members", "`addresses` of all members, the same on each: 1=127.0.0.1:7001,2=127.0.0.1:7002,3=127.0.0.1:7003")
	f.Var((*addresses)(&c.ClientAddrs), "client-addresses", "`addresses` at which clients reach the members, as in members")
	f.StringVar(&c.Listen, "listen", "", "`address` to listen on for members, if it is not the one in members")
	f.BoolVar(&c.Joins, "joins", false, "this member comes to a cluster that was founded without it, or with a new directory; cluster names it")
	f.StringVar(&c.Cluster, "cluster", "", "the `number` of the cluster, for joins: /members has it")
	f.StringVar(&s.tokenFile, "join-token-file", "", "a `file` with a join token (millrace members token), in place of joins and cluster")
	f.StringVar(&s.tls.CertFile, "cert", "", "a `file` with the certificate that names this member (millrace cert): members talk over TLS")
	f.StringVar(&s.tls.KeyFile, "key", "", "a `file` with the private key of cert")
	f.StringVar(&s.tls.CAFile, "ca", "", "a `file` with the CAs that name members")
	f.BoolVar(&c.Insecure, "insecure", false, "allow members on other machines without TLS: every program that reaches the port can read and write the data")
	f.BoolVar(&c.Leases, "leases", false, "let members promise their leader to elect no other for a while, the same on each: reads with leases need it")
	f.StringVar(&c.Zone, "zone", "", "the `name` of the rack, datacenter or region of this member")
	f.DurationVar(&c.HeartbeatInterval, "heartbeat", 100*time.Millisecond, "`time` between heartbeats, the same on each member")
	f.DurationVar(&c.ElectionTimeout, "election-timeout", 0, "`time` without a leader after which members elect one; 0: ten heartbeats")
	f.DurationVar(&c.StallTimeout, "stall-timeout", 0, "`time` for which the disk of a leader may complete nothing before it hands over; 0: two election timeouts")
	f.Int64Var(&c.MemoryBytes, "memory-bytes", 256<<20, "about the most `bytes` for what is under way; the state is not counted")
	f.IntVar(&c.MaxCommandBytes, "max-command-bytes", 0, "the `bytes` of the largest command; 0: 8 MiB, or what memory-bytes allows")
	f.Int64Var(&c.MaxLagBytes, "max-lag-bytes", 0, "how many `bytes` of commands a leader's state machine may have still to apply; 0: memory-bytes; less than 0: no bound")
	f.Int64Var(&c.PublicationBytes, "publication-bytes", 0, "how many `bytes` of publications are kept for subscribers, in memory and in each snapshot; 0: 16 MiB")
	f.Int64Var(&c.Snapshots.LogBytes, "snapshot-bytes", 0, "how many `bytes` the log grows between two snapshots; 0: 64 MiB, or four times the last snapshot if that is more")
	f.DurationVar(&c.Snapshots.Every, "snapshot-every", 0, "`time` after which a snapshot is taken if anything has changed; 0: only the size of the log counts")
	f.Int64Var(&c.Snapshots.KeepBytes, "snapshot-keep-bytes", 0, "how many `bytes` of the log stay behind a snapshot; 0: as many as the snapshot has")
	f.Int64Var(&c.Snapshots.MaxLogBytes, "snapshot-max-log-bytes", 0, "the most `bytes` that the two before have by default; 0: no bound. Set it if snapshots are links")
	f.Int64Var(&c.SnapshotBytesPerSecond, "snapshot-rate", 0, "`bytes` of snapshots sent in a second; 0: 64 MiB")
	f.Int64Var(&c.ObjectBytesPerSecond, "object-rate", 0, "`bytes` of large objects sent in a second; 0: 1 GiB")
	f.BoolVar(&c.AdminSocket, "admin-socket", true, "make a Unix socket in dir, for millrace members and millrace snapshot save")
	f.Int64Var(&c.FlightRecorder.Bytes, "flight-bytes", 0, "about the most `bytes` of memory for recordings of what members did; 0: none")

	f.BoolVar(&c.StageTimes, "stage-times", true, "measure how long commands and reads take, for /metrics")

	f.StringVar(&s.Listen, "ops", "", "`address` for /metrics, /livez, /readyz, /explain, /members and /backup; empty: they are not served")
	f.BoolVar(&s.Public, "ops-public", false, "let other machines reach ops: no client is asked for a password, and /backup has all the data")
	f.BoolVar(&s.Pprof, "pprof", false, "serve profiles of the process at /debug/pprof/ of ops")
	f.BoolVar(&s.HostOnly, "metrics-host-only", false, "leave the series of groups out of /metrics")
	f.DurationVar(&s.StopDelay, "stop-delay", 0, "`time` between /readyz saying so and the end of service, for balancers that must see it")
	f.DurationVar(&s.StopTimeout, "stop-timeout", 10*time.Second, "the longest `time` for requests under way at the end, and then for closing the node")
	return s
}

// Parse reads the file, the environment and the command line (without the name of the program). An error is a
// UsageError, or ErrPrinted.
func (s *Settings) Parse(args, environment []string) error {
	if err := s.Flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			s.printHelp()
			return ErrPrinted
		}
		return &UsageError{s.badFlag(err)}
	}
	if s.Flags.NArg() > 0 {
		return &UsageError{fmt.Errorf("%.80q is no setting; -h lists them", s.Flags.Arg(0))}
	}
	s.Flags.Visit(func(f *flag.Flag) { s.sources[f.Name] = "the command line" })
	if err := s.parseEnvironment(environment); err != nil {
		return &UsageError{err}
	}
	if s.file != "" {
		if err := s.parseFile(s.file); err != nil {
			return &UsageError{err}
		}
	}
	if err := s.complete(); err != nil {
		return &UsageError{err}
	}
	if s.print {
		return s.printSettings()
	}
	return nil
}

// Source says where the value of a setting comes from, such as "the command line".
func (s *Settings) Source(name string) string {
	if from := s.sources[name]; from != "" {
		return from
	}
	return "the default"
}

// set sets a setting unless a stronger place has.
func (s *Settings) set(name, value, from string) error {
	if s.sources[name] != "" {
		return s.trial(name, value, from)
	}
	f := s.Flags.Lookup(name)
	if err := f.Value.Set(value); err != nil {
		return badValue(f, value, from, err)
	}
	s.sources[name] = from
	return nil
}

// trial checks a value that is not used: it would be an error on the day on which the stronger one goes.
func (s *Settings) trial(name, value, from string) error {
	f := s.Flags.Lookup(name)
	if _, ok := f.Value.(flag.Getter); !ok {
		return nil // a function of the program, which might not like to be called twice
	}
	before := f.Value.String()
	err := f.Value.Set(value)
	if restored := f.Value.Set(before); restored != nil {
		return fmt.Errorf("setting %s: its value %.80q cannot be set again: %w", name, before, restored)
	}
	if err != nil {
		return badValue(f, value, from, err)
	}
	return nil
}

// badValue says which value is wrong, where it is, and what is allowed.
func badValue(f *flag.Flag, value, from string, err error) error {
	g, _ := f.Value.(flag.Getter)
	var want string
	if g != nil {
		switch g.Get().(type) {
		case uint64:
			want = "a number from 0 to 18446744073709551615"
		case int64, int:
			want = "a whole number such as 65536"
		case time.Duration:
			want = "a time such as 500ms or 10s"
		case bool:
			want = "true or false"
		}
	}
	if want == "" {
		return fmt.Errorf("setting %s (%s) is %.80q: %w", f.Name, from, value, err)
	}
	return fmt.Errorf("setting %s (%s) is %.80q, want %s", f.Name, from, value, want)
}

// badValueOfFlag is how package flag reports a bad value.
var badValueOfFlag = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([^:]+): (.*)$`)

// badFlag says what is wrong with the command line, in the sentence that the other places have.
func (s *Settings) badFlag(err error) error {
	if m := badValueOfFlag.FindStringSubmatch(err.Error()); m != nil {
		if f := s.Flags.Lookup(m[2]); f != nil {
			value, unquoted := strconv.Unquote(m[1])
			if unquoted == nil {
				return badValue(f, value, "the command line", errors.New(m[3]))
			}
		}
	}
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		return fmt.Errorf("the command line has --%.80s, which is no setting%s; -h lists them", name, s.similar(name, func(n string) string { return "--" + n }))
	}
	return fmt.Errorf("the command line: %w; -h lists the settings", err)
}

// complete makes Config of what is in other settings, and checks it.
func (s *Settings) complete() error {
	c := &s.Config
	if s.tls.CertFile != "" || s.tls.KeyFile != "" || s.tls.CAFile != "" {
		c.TLS = &s.tls
	}
	switch {
	case s.StopDelay < 0 || s.StopDelay > time.Hour:
		return s.wrong("stop-delay", "%v, want 0s to 1h", s.StopDelay)
	case s.StopTimeout < time.Millisecond || s.StopTimeout > time.Hour:
		return s.wrong("stop-timeout", "%v, want 1ms to 1h", s.StopTimeout)
	case s.Listen == "" && s.Pprof:
		return s.wrong("pprof", "true, and ops is empty, so no pages are served; set ops to an address such as 127.0.0.1:9001")
	}
	if err := s.checkListen(); err != nil {
		return err
	}
	if s.tokenFile != "" {
		token, err := readBounded(s.tokenFile, maxTokenBytes)
		if err != nil {
			return s.wrong("join-token-file", "%.200q: %w", s.tokenFile, err)
		}
		c.JoinToken = strings.TrimSpace(string(token))
	}
	return s.explainConfig(c.Validate())
}

// maxTokenBytes bounds a file with a join token; one has less than 1 KiB.
const maxTokenBytes = 64 << 10

func (s *Settings) wrong(name, format string, args ...any) error {
	return fmt.Errorf("setting %s (%s) is "+format, append([]any{name, s.Source(name)}, args...)...)
}

// checkListen refuses an address for ops that cannot be listened on, or that others reach against the will of
// the settings.
func (s *Settings) checkListen() error {
	if s.Listen == "" {
		return nil
	}
	name, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return s.wrong("ops", "%.80q, want host:port such as 127.0.0.1:9001: %w", s.Listen, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return s.wrong("ops", "%.80q, want host:port, where port is a number from 0 to 65535", s.Listen)
	}
	ip, err := netip.ParseAddr(name)
	if loopback := name == "localhost" || err == nil && ip.Unmap().IsLoopback(); !loopback && !s.Public {
		return s.wrong("ops", "%.80q, which is not a loopback address; no client is asked for a password, and /backup has all the data; set ops-public to let other machines in", s.Listen)
	}
	return nil
}
