package ops

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// settingsOf parses settings from three places. The file is written if it is not empty.
func settingsOf(t *testing.T, args, environment []string, file string) (*Settings, error) {
	t.Helper()
	s := NewSettings("test")
	s.output = new(bytes.Buffer)
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	return s, s.Parse(args, environment)
}

const one = "--id 1 --dir d --members 1=127.0.0.1:7001"

// Later places win: the default, the file, the environment, the command line.
func TestPrecedence(t *testing.T) {
	const file = "id: 2\ndir: from-file\nzone: a\nheartbeat: 40ms\nmembers:\n  1: 127.0.0.1:7001\n  2: 127.0.0.1:7002\nleases: true\n"
	s, err := settingsOf(t, strings.Fields("--id 1 -heartbeat=20ms"), []string{"PATH=/bin", "MILLRACE_ID=7", "MILLRACE_DIR=from-environment", "MILLRACE_ELECTION_TIMEOUT=3s"}, file)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Config
	if c.ID != 1 || c.Dir != "from-environment" || c.Zone != "a" || c.HeartbeatInterval != 20*time.Millisecond || c.ElectionTimeout != 3*time.Second || !c.Leases || c.MemoryBytes != 256<<20 {
		t.Errorf("%+v", c)
	}
	if want := map[uint64]string{1: "127.0.0.1:7001", 2: "127.0.0.1:7002"}; !maps.Equal(c.Members, want) {
		t.Errorf("members are %v, want %v", c.Members, want)
	}
	for name, want := range map[string]string{"id": "the command line", "dir": "the environment (MILLRACE_DIR)", "zone": "settings.yaml, line 3", "cluster": "the default"} {
		if from := s.Source(name); !strings.HasSuffix(from, want) {
			t.Errorf("%s is from %s, want %s", name, from, want)
		}
	}
}

// What a program sets before Parse is a default, and its own flags are settings like all others.
func TestProgramsSettings(t *testing.T) {
	s := NewSettings("test")
	limit := s.Flags.Int64("max-bytes", 7, "the `bytes` of the largest thing")
	s.Config.ClientAddrs = map[uint64]string{1: "here"}
	if err := s.Parse(strings.Fields(one), []string{"MILLRACE_MAX_BYTES=9"}); err != nil || *limit != 9 || s.Config.ClientAddrs[1] != "here" {
		t.Errorf("%v, max-bytes is %d, %v", err, *limit, s.Config.ClientAddrs)
	}
	if err := NewSettings("test").Parse(strings.Fields(one), []string{"MILLRACE_MAX_BYTES=9"}); err == nil {
		t.Error("a setting of another program is taken")
	}
}

// What is printed gives the same settings when it is read.
func TestPrintConfig(t *testing.T) {
	args := strings.Fields(one + ",2=[::1]:7002,3=localhost:7003 --zone yes --ops 127.0.0.1:9001 --pprof --stop-delay 2s")
	s, err := settingsOf(t, append([]string{"--print-config"}, args...), nil, "")
	text := s.output.(*bytes.Buffer).String()
	if !errors.Is(err, ErrPrinted) {
		t.Fatalf("%v:\n%s", err, text)
	}
	for _, line := range []string{"id: 1 # the command line\n", "heartbeat: 100ms # the default\n", "pprof: true # the command line\n", `zone: "yes" # the command line` + "\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("it lacks %q:\n%s", line, text)
		}
	}
	again, err := settingsOf(t, nil, nil, text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	s.Flags.VisitAll(func(f *flag.Flag) {
		if have := again.Flags.Lookup(f.Name).Value.String(); have != f.Value.String() && !slices.Contains(notInFile, f.Name) {
			t.Errorf("%s is %q, want %q", f.Name, have, f.Value)
		}
	})
	if !reflect.DeepEqual(again.Config, s.Config) {
		t.Errorf("%+v\nwant\n%+v", again.Config, s.Config)
	}
}

func TestHelp(t *testing.T) {
	s, err := settingsOf(t, []string{"-h"}, nil, "")
	if text := s.output.(*bytes.Buffer).String(); !errors.Is(err, ErrPrinted) || !strings.Contains(text, "  --members addresses\n        addresses of all members") || !strings.Contains(text, "MILLRACE_ID") {
		t.Errorf("%v:\n%s", err, text)
	}
}

// Each bad setting has a sentence: what, where, the value, and what is allowed.
func TestBadSettings(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("# nothing\n"), maxFileBytes/10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, environment, file, want string }{
		// The command line.
		{"", "", "", "Config.ID is 0; give each member a different id, starting at 1 [Config.ID is the setting id (the default)]"},
		{"--id one", "", "", `setting id (the command line) is "one", want a number from 0 to 18446744073709551615`},
		{"--id -1", "", "", `setting id (the command line) is "-1", want a number from 0`},
		{"--id 18446744073709551616", "", "", `setting id (the command line) is "18446744073709551616", want a number from 0`},
		{one + " --leases=perhaps", "", "", `setting leases (the command line) is "perhaps", want true or false`},
		{one + " --heartbeat 100", "", "", `setting heartbeat (the command line) is "100", want a time such as 500ms or 10s`},
		{one + " --heartbeat 1us", "", "", "Config.HeartbeatInterval is the setting heartbeat (the command line)"},
		{one + " --election-timeout 1ms", "", "", "Config.ElectionTimeout is the setting election-timeout (the command line)"},
		{one + " --memory-bytes 64MiB", "", "", `setting memory-bytes (the command line) is "64MiB", want a whole number such as 65536`},
		{one + " --memory-bytes 1", "", "", "Config.MemoryBytes is the setting memory-bytes (the command line)"},
		{one + " --max-command-bytes -1", "", "", "Config.MaxCommandBytes is -1"},
		{one + " --member 1=a", "", "", "the command line has --member, which is no setting (--members is)"},
		{one + " --bootstrap-expect 3", "", "", "the command line has --bootstrap-expect, which is no setting; -h lists them"},
		{one + " more", "", "", `"more" is no setting`},
		{one + " --zone", "", "", "the command line: flag needs an argument: -zone"},
		{"--id 1 --dir d --members 127.0.0.1:7001", "", "", `setting members (the command line) is "127.0.0.1:7001": "127.0.0.1:7001": want number=address`},
		{"--id 1 --dir d --members 0=127.0.0.1:7001", "", "", "with a number above 0"},
		{"--id 1 --dir d --members 1=127.0.0.1:7001,1=127.0.0.1:7002", "", "", `"1=127.0.0.1:7002": want number=address with a number above 0, each number once`},
		{"--id 1 --dir d --members 1=127.0.0.1", "", "", "member 1: want host:port"},
		{"--id 1 --dir d --members 1=10.0.0.1:7001", "", "", "which is not a loopback address; without Config.TLS"},
		{"--id 2 --dir d --members 1=127.0.0.1:7001", "", "", "Config.Members has no entry for this host, id 2"},
		{"--id 1 --members 1=127.0.0.1:7001", "", "", "Config.Dir is the setting dir (the default)"},
		{one + " --cert a.pem", "", "", "KeyFile"},
		{one + " --cert a --key b --ca c --insecure", "", "", "Config.Insecure is the setting insecure (the command line)"},
		{one + " --join-token-file /does/not/exist", "", "", `setting join-token-file (the command line) is "/does/not/exist": open`},
		{one + " --ops 9001", "", "", `setting ops (the command line) is "9001", want host:port such as 127.0.0.1:9001`},
		{one + " --ops 127.0.0.1:http", "", "", "where port is a number from 0 to 65535"},
		{one + " --ops :9001", "", "", "set ops-public to let other machines in"},
		{one + " --ops 10.0.0.1:9001", "", "", "which is not a loopback address"},
		{one + " --pprof", "", "", "setting pprof (the command line) is true, and ops is empty"},
		{one + " --stop-timeout 0s", "", "", "setting stop-timeout (the command line) is 0s, want 1ms to 1h"},
		{one + " --stop-delay 2h", "", "", "setting stop-delay (the command line) is 2h0m0s, want 0s to 1h"},
		{one + " --config /does/not/exist.yaml", "", "", "setting config (the command line): open /does/not/exist.yaml"},
		{one + " --config " + dir, "", "", "is a directory"},
		{one + " --config " + large, "", "", "it has more than 1048576 bytes"},
		// The environment.
		{one, "MILLRACE_ZONES=a", "", "the environment has MILLRACE_ZONES, which is no setting (MILLRACE_ZONE is); -h lists them"},
		{one, "MILLRACE_=a", "", "the environment has MILLRACE_, which is no setting"},
		{one, "MILLRACE_zone=a", "", "the environment has MILLRACE_zone, which is no setting"},
		{one, "MILLRACE_PRINT_CONFIG=true", "", "which is for the command line only"},
		{one, "MILLRACE_HEARTBEAT=fast", "", `setting heartbeat (the environment (MILLRACE_HEARTBEAT)) is "fast", want a time`},
		{one, "MILLRACE_ID=", "", `setting id (the environment (MILLRACE_ID)) is "", want a number`},
		{one, "MILLRACE_MEMBERS=1", "", `is "1": "1": want number=address`},
		{one, "MILLRACE_OPS=0.0.0.0:1", "", "setting ops (the environment (MILLRACE_OPS)) is"},
		// The file.
		{one, "", "zonne: a\n", `line 1: "zonne" is no setting (zone is)`},
		{one, "", "zone: a\nzone: b\n", "line 2: zone is set twice, on line 1 before"},
		{one, "", "config: other.yaml\n", "line 1: config is for the command line only"},
		{one, "", "- zone\n", "line 1: want settings such as \"id: 1\", have a list"},
		{one, "", "zone\n", `have "zone"`},
		{one, "", "zone: [a, b]\n", "setting zone in"},
		{one, "", "zone:\n", "it has no value; leave it out for the default"},
		{one, "", "dir: &d x\nzone: *d\n", "have an alias; write the value itself"},
		{one, "", "zone: {a: b}\nheartbeat: {a: b}\n", `setting heartbeat (`},
		{one, "", "leases: yes\n", `line 1) is "yes", want true or false`},
		{one, "", "election-timeout: 10\n", `line 1) is "10", want a time`},
		{one, "", "memory-bytes: 1e9\n", `line 1) is "1e9", want a whole number`},
		{one, "", "client-addresses:\n  1: [a]\n", "line 2: want a number and an address, such as 1: 127.0.0.1:7001"},
		{one, "", "client-addresses:\n  first: 127.0.0.1:80\n", `"first=127.0.0.1:80": want number=address`},
		{one, "", "id: x\n", `line 1) is "x", want a number`}, // although the command line wins
		{one, "", "a: b: c\n", "it is no YAML"},
		{one, "", "zone: a\n---\nzone: b\n", "it has more than one document"},
		{one, "", "? [a]\n: b\n", "want the name of a setting, have a list"},
	} {
		var environment []string
		if c.environment != "" {
			environment = []string{c.environment}
		}
		_, err := settingsOf(t, strings.Fields(c.args), environment, c.file)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %q:\n%v\nwant %s", c.args, c.environment, c.file, err, c.want)
		}
	}
}

// Each setting that settingOf names is there, and each field that it names is in Config.
func TestSettingOf(t *testing.T) {
	s := NewSettings("test")
	for field, names := range settingOf {
		for name := range strings.SplitSeq(strings.ReplaceAll(names, " and ", ", "), ", ") {
			if s.Flags.Lookup(name) == nil {
				t.Errorf("Config.%s: there is no setting %s", field, name)
			}
		}
		at := reflect.TypeFor[millrace.Config]()
		for part := range strings.SplitSeq(field, ".") {
			if at.Kind() == reflect.Pointer {
				at = at.Elem()
			}
			f, found := at.FieldByName(part)
			if !found && field != "JoinTokens" { // of host.Config
				t.Errorf("millrace.Config has no %s", field)
				break
			}
			at = f.Type
		}
	}
}

// An empty file, one of comments, and what Kubernetes says of a Service are no errors.
func TestNoSettings(t *testing.T) {
	kubernetes := []string{"MILLRACE_SERVICE_HOST=10.0.0.1", "MILLRACE_SERVICE_PORT_RAFT=1", "MILLRACE_PORT=tcp://10.0.0.1:1", "MILLRACE_PORT_7001_TCP_ADDR=10.0.0.1", "MILLRACE_0_SERVICE_HOST=x"}
	if _, err := settingsOf(t, strings.Fields(one), kubernetes, ""); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"# nothing\n", "---\n", "{}\n", "null\n"} {
		if _, err := settingsOf(t, strings.Fields(one), nil, file); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}
