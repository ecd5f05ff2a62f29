package config

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEveryFlagOfEtcdIsKnown compares the table with the flags that etcd 3.7.3 prints.
func TestEveryFlagOfEtcdIsKnown(t *testing.T) {
	b, err := os.ReadFile("testdata/etcd-3.7-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.Fields(string(b))
	if len(theirs) < 100 {
		t.Fatalf("the list has %d flags: it is cut", len(theirs))
	}
	for _, name := range theirs {
		if lookup(name) == nil {
			t.Errorf("--%s of etcd is not known", name)
		}
	}
	for _, f := range Flags {
		if f.Own == slices.Contains(theirs, f.Name) {
			t.Errorf("--%s: Own is %v, and etcd's list has it: %v", f.Name, f.Own, !f.Own)
		}
		if (f.Effect == Works) != (f.Why == "") || (f.Effect == Works) != (f.Usage != "") {
			if f.Effect == Works || f.Why == "" {
				t.Errorf("--%s %v: Usage %q, Why %q", f.Name, f.Effect, f.Usage, f.Why)
			}
		}
		if err := f.checkForm(f.Default); err != nil {
			t.Errorf("--%s: the default: %v", f.Name, err)
		}
	}
}

// TestTheListIsThatOfEtcd asks the binary itself, if there is one.
func TestTheListIsThatOfEtcd(t *testing.T) {
	binary := os.Getenv("MILLRACE_TEST_ETCD")
	if binary == "" {
		t.Skip("MILLRACE_TEST_ETCD names no etcd")
	}
	help, _ := exec.Command(binary, "--help").CombinedOutput()
	for _, m := range regexp.MustCompile(`(?m)^  --([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1) {
		if name := m[1]; name != "version" && name != "config-file" && lookup(name) == nil {
			t.Errorf("--%s of %s is not known", name, binary)
		}
	}
}

func load(t *testing.T, environ, file string, args ...string) (*Loaded, error) {
	t.Helper()
	return Load(args, strings.Fields(environ), func(string) ([]byte, error) { return []byte(file), nil })
}

func TestPrecedence(t *testing.T) {
	l, err := load(t, "ETCD_NAME=a MILLRACE_NAME=b ETCD_MAX_TXN_OPS=7 ETCD_TYPO=1", "", "--max-txn-ops=9")
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.Name != "b" || l.Config.MaxTxnOps != 9 || l.Config.Dir != "b.etcd" {
		t.Errorf("have %q, %d, %q", l.Config.Name, l.Config.MaxTxnOps, l.Config.Dir)
	}
	told := strings.Join(l.Warnings, "\n")
	for _, want := range []string{"ETCD_MAX_TXN_OPS is ignored", "ETCD_TYPO names no flag"} {
		if !strings.Contains(told, want) {
			t.Errorf("no warning %q in\n%s", want, told)
		}
	}
	// A file stands alone, as in etcd.
	l, err = load(t, "ETCD_NAME=a ETCD_CONFIG_FILE=f", "max-txn-ops: 11", "--name=c")
	if err != nil || l.Config.Name != "default" || l.Config.MaxTxnOps != 11 {
		t.Errorf("with a file: %+v, %v", l, err)
	}
	// One dash, a value of its own, and a bare boolean, as Go's flags.
	l, err = load(t, "", "", "-name", "d", "--enable-pprof", "-enable-grpc-gateway=false")
	if err != nil || l.Config.Name != "d" || !l.Config.Pprof || l.Config.Gateway {
		t.Errorf("forms of flags: %+v, %v", l, err)
	}
}

func TestFile(t *testing.T) {
	l, err := load(t, "", `
name: infra1
data-dir: /data
heartbeat-interval: 50
election-timeout: 500
listen-client-urls: https://127.0.0.1:2379,unix://x
log-outputs: [stderr, a.log]
grpc-keepalive-interval: 600000000000
watch-progress-notify-interval: 5s
snapshot-count: 5000
nonsense: 1
client-transport-security:
  cert-file: c.pem
  key-file: k.pem
  client-cert-auth: true
  trusted-ca-file: ca.pem
socket-options: {reuse-port: true}
`, "--config-file=f")
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if c.Name != "infra1" || c.ElectionTimeout != 500*time.Millisecond || len(c.ListenClient) != 2 || !c.ClientTLS.ClientAuth ||
		c.ClientTLS.CAFile != "ca.pem" || c.KeepAlive.Interval != 10*time.Minute || c.ProgressInterval != 5*time.Second ||
		!slices.Equal(c.LogOutputs, []string{"stderr", "a.log"}) || !c.ReusePort {
		t.Errorf("%+v", c)
	}
	told := strings.Join(l.Warnings, "\n")
	if !strings.Contains(told, "snapshot-count in the configuration file has no effect") || !strings.Contains(told, "nonsense in the configuration file") {
		t.Error(told)
	}
}

// TestSentences holds what bad settings are told: where, what, and what to do.
func TestSentences(t *testing.T) {
	for _, row := range []struct{ args, env, want string }{
		{args: "--heartbeat-interval=x", want: `--heartbeat-interval: "x" is not a number of 0 or more`},
		{env: "ETCD_ELECTION_TIMEOUT=-5", want: `ETCD_ELECTION_TIMEOUT: "-5" is not a number of 0 or more`},
		{args: "--election-timeout=200", want: "at least 5 times as long"},
		{args: "--election-timeout=60000", want: "at most 50s"},
		{args: "--wal-dir=/fast", want: "--wal-dir is not served: Log and state are in one directory"},
		{args: "--discovery=https://x", want: "Name all members in --initial-cluster"},
		{args: "--force-new-cluster", want: "millrace members rescue"},
		{args: "--unsafe-no-fsync", want: "Writes always reach the disk"},
		{args: "--initial-cluster-state=existing", want: "not served yet"},
		{args: "--initial-cluster-state=old", want: `"old" is none of new`},
		{args: "--listen-client-urls=127.0.0.1:2379", want: "--listen-client-urls"},
		{args: "--listen-client-urls=http://127.0.0.1", want: `does not have the form "host:port"`},
		{args: "--listen-client-urls=http://h:1/x", want: "must not contain a path"},
		{args: "--listen-client-urls=https://h:1", want: "--cert-file or --key-file is missing"},
		{args: "--listen-peer-urls=https://h:1", want: "millrace cert"},
		{args: "--listen-peer-urls=http://h:1,http://i:1", want: "listens on one for the others"},
		{args: "--cert-file=c", want: "belong together"},
		{args: "--client-cert-auth", want: "needs --trusted-ca-file"},
		{args: "--cipher-suites=RC4", want: `unexpected TLS cipher suite "RC4"`},
		{args: "--tls-min-version=TLS1.3 --tls-max-version=TLS1.2", want: "greater than max version"},
		{args: "--initial-cluster=a=http://h:1", want: `couldn't find local name "default"`},
		{args: "--initial-cluster=http://h:1", want: "is not NAME=URL"},
		{args: "--initial-cluster=default=http://h:1 --initial-advertise-peer-urls=http://h:2", want: "is missing from --initial-advertise-peer-urls"},
		{args: "--auto-compaction-retention=x", want: "neither a number of hours nor a duration"},
		{args: "--auto-compaction-mode=revision --auto-compaction-retention=1h", want: "not a number of revisions"},
		{args: "--max-request-bytes=99999999", want: "a command of the log holds 8 MiB"},
		{args: "--max-txn-ops=0", want: "must be at least 1"},
		{args: "--snapshot-log-bytes=16383", want: "must be 0 or at least 16384"},
		{args: "--no-such", want: "see millrace serve --help"},
		{args: "gateway", want: `"gateway" is not a valid flag`},
		{args: "--auth-token=jwt", want: "no users and roles yet"},
	} {
		_, err := load(t, row.env, "", strings.Fields(row.args)...)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s%s: have %v, want %q", row.env, row.args, err, row.want)
		}
	}
	if _, err := load(t, "", "", "--help"); !errors.Is(err, ErrHelp) {
		t.Errorf("--help: %v", err)
	}
	if _, err := Load(nil, []string{"ETCD_CONFIG_FILE=x"}, func(string) ([]byte, error) { return nil, os.ErrNotExist }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestIDs holds the ids of members: those that etcd 3.7.3 has printed for the same flags.
func TestIDs(t *testing.T) {
	if have := (Member{PeerURLs: []string{"http://127.0.0.1:23791"}}).ID("etcd-cluster"); have != 12428976124636271536 {
		t.Errorf("have %d", have)
	}
}

func TestPrintConfig(t *testing.T) {
	l, err := load(t, "ETCD_NAME=a", "", "--print-config", "--snapshot-count=7", "--auto-compaction-retention=3")
	if err != nil || !l.Print {
		t.Fatal(err)
	}
	for _, want := range []string{"name: \"a\" # ETCD_NAME\n", "snapshot-count: \"7\" # flag, no effect\n", "max-txn-ops: \"128\" # default\n",
		"# member a has id 10276657743932975437 (8e9e05c52164694d)\n"} {
		if !strings.Contains(l.Text(), want) {
			t.Errorf("no %q in\n%s", want, l.Text())
		}
	}
	if l.Config.AutoCompaction.Period != 3*time.Hour {
		t.Errorf("%v", l.Config.AutoCompaction)
	}
	for _, f := range Flags {
		if !strings.Contains(Help(), "--"+f.Name) {
			t.Errorf("the help has no --%s", f.Name)
		}
	}
}

func TestADirectoryOfEtcdIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := CheckDir(dir); err != nil {
		t.Error(err)
	}
	_ = os.MkdirAll(dir+"/member/snap", 0o700)
	_ = os.WriteFile(dir+"/member/snap/db", nil, 0o600)
	if err := CheckDir(dir); err == nil || !strings.Contains(err.Error(), "data directory of etcd") {
		t.Error(err)
	}
}
