package app

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
)

// unitFile is a unit: values by section and option, as [Service]ExecStart.
func unitFile(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/app/systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, o := range options {
		key := "[" + o.Section + "]" + o.Name
		all[key] = append(all[key], o.Value)
	}
	return all
}

// systemd's own tools find nothing wrong with the units, and little exposed.
func TestUnitsForSystemd(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("this machine has no systemd-analyze")
	}
	dir := t.TempDir()
	for _, name := range []string{"kv.service", "kv-backup.service"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/app/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		// The programs, and the pages of the manual, are not on this machine.
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/kv "), []byte(program(t, "kv")+" "))
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/millrace "), []byte(program(t, "millrace")+" "))
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"kv.service", "kv-backup.service"} {
		file := filepath.Join(dir, name)
		verify := exec.CommandContext(t.Context(), tool, "verify", "--man=no", "--recursive-errors=no", file)
		if out, err := verify.CombinedOutput(); err != nil || bytes.Contains(out, []byte(name)) {
			t.Errorf("%v: %v\n%s", verify.Args, err, out)
		}
		// The threshold is in tenths: 2.0 of 10. What remains is that kv listens on the network.
		security := exec.CommandContext(t.Context(), tool, "security", "--offline=true", "--threshold=20", "--no-pager", file)
		if out, err := security.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", security.Args, err, out)
		}
	}
}

// The command of the unit runs here, with the files of its comment, as systemd starts it: READY=1 comes, and
// STOPPING=1 at the end.
func TestUnitRunsHere(t *testing.T) {
	t.Parallel()
	u, pki, p := unitFile(t, "kv.service"), makePKI(t, 1), newPlace(t)
	if u["[Service]Type"][0] != "notify" || u["[Service]RestartPreventExitStatus"][0] != "64" || u["[Service]LimitNOFILE"][0] != "65536" {
		t.Errorf("%v", u)
	}
	work := t.TempDir()
	credentials := filepath.Join(work, "credentials")
	for _, credential := range u["[Service]LoadCredential"] {
		name, from, _ := strings.Cut(credential, ":")
		made := map[string]string{"/etc/kv/cert.pem": "member-1.pem", "/etc/kv/key.pem": "member-1-key.pem", "/etc/kv/ca.pem": "ca.pem"}[from]
		copyFile(t, filepath.Join(pki, made), filepath.Join(credentials, name))
	}
	settings, err := os.ReadFile(filepath.Join(root, "deploy/app/systemd/kv.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(settings)) {
		if !strings.HasPrefix(line, "  2: ") && !strings.HasPrefix(line, "  3: ") { // one member founds alone
			lines = append(lines, strings.ReplaceAll(strings.ReplaceAll(line, "10.0.0.", p.prefix), "127.0.0.1:", p.prefix+"1:"))
		}
	}
	file := filepath.Join(work, "kv.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(work, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	command := strings.NewReplacer("${CREDENTIALS_DIRECTORY}", credentials, "/var/lib/kv", filepath.Join(work, "data"), "/etc/kv/kv.yaml", file,
		"/usr/local/bin/kv", program(t, "kv")).Replace(u["[Service]ExecStart"][0])
	args := strings.Fields(command)
	kv := start(t, append(os.Environ(), "NOTIFY_SOCKET="+socket.LocalAddr().String()), args[0], args[1:]...)
	told := func(want string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := socket.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Fatalf("systemd is told %q, %v, want %q\n%s", b[:n], err, want, kv.said())
		}
	}
	told("READY=1")
	eventually(t, "it is ready", func() error { _, err := get("http://" + p.address(1, 9001) + "/readyz"); return err }, kv)
	kv.stop(t, 60*time.Second)
	told("STOPPING=1")
}

// The unit of the backups runs the command that its documents name, in the directory that it may write.
func TestBackupUnit(t *testing.T) {
	u := unitFile(t, "kv-backup.service")
	args := strings.Fields(u["[Service]ExecStart"][0])
	at := slices.Index(args, "--to")
	if at < 0 || !slices.Contains(strings.Fields(u["[Service]ReadWritePaths"][0]), args[at+1]) || u["[Unit]RequiresMountsFor"][0] != args[at+1] {
		t.Fatalf("%q, %v", args, u)
	}
	out, err := exec.CommandContext(t.Context(), program(t, "millrace"), append(args[1:], "--group=0x")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--group") {
		t.Errorf("the other flags are right: %v, %s", err, out)
	}
}
