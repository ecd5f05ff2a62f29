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
	"strconv"
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
	for _, row := range badInput(t, "flag", "environment", "file") {
		input := strings.NewReplacer("{one}", one, "{dir}", dir, "{large}", large, `\n`, "\n").Replace(row.input)
		args, environment, file := []string(nil), []string(nil), ""
		switch row.where {
		case "flag":
			args = strings.Fields(input)
		case "environment":
			args, environment = strings.Fields(one), []string{input}
		case "file":
			args, file = strings.Fields(one), input
		}
		_, err := settingsOf(t, args, environment, file)
		var usage *UsageError
		if !errors.As(err, &usage) || row.status != StatusUsage || !strings.Contains(err.Error(), row.want) {
			t.Errorf("line %d: %s %s:\n%v\nwant %s", row.line, row.where, row.input, err, row.want)
		}
	}
}

// row is a row of testdata/bad-input.txt.
type row struct {
	line         int
	where, input string
	status       int
	want         string
}

// badInput returns the rows of some places.
func badInput(t *testing.T, where ...string) (rows []row) {
	t.Helper()
	text, err := os.ReadFile("testdata/bad-input.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		f := strings.Split(line, "\t")
		if !slices.Contains(where, f[0]) {
			continue
		}
		r := row{line: i + 1, where: f[0]}
		if len(f) == 4 {
			r.input, r.want = f[1], f[3]
			r.status, err = strconv.Atoi(f[2])
		}
		if len(f) != 4 || err != nil {
			t.Fatalf("testdata/bad-input.txt: line %d: want four columns with tabs between, and a number in the third: %q", i+1, line)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		t.Fatalf("testdata/bad-input.txt has no rows of %v", where)
	}
	return rows
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
