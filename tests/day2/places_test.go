package day2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Where a member runs: filesystems, addresses, machines. Each test writes, kills, and starts again.

// start makes a day with n members and starts them.
func start(t *testing.T, n uint64, change func(*process)) *day {
	t.Helper()
	d := &day{root: home(t), members: map[uint64]*process{}}
	t.Cleanup(func() { d.end(t); unmountAll(t) })
	for id := range n {
		p := d.create(t, id+1)
		if change != nil {
			change(p)
		}
	}
	for _, p := range d.all() {
		p.begin(t, d.list())
	}
	d.wellEverywhere(t)
	d.write(t, d.leader(t), 1, 1) // so it is founded: Explain is patient with a group that is being founded
	return d
}

// add adds to the account of the client, through a member.
func (d *day) add(t *testing.T, p *process, amount int) {
	t.Helper()
	if err := within(maxWait, func() error {
		_, err := p.post("/add", url.Values{"account": {account}, "amount": {fmt.Sprint(amount)}})
		if r := (*refusal)(nil); errors.As(err, &r) && r.mayHaveBegun {
			t.Fatalf("member %d: the outcome is not known: %v", p.id, err)
		}
		return err
	}); err != nil {
		t.Fatalf("member %d: %v\n%s", p.id, err, p.tail())
	}
}

// holds demands a balance on a member.
func (d *day) holds(t *testing.T, p *process, want int) {
	t.Helper()
	if err := within(maxWait, func() error {
		text, err := p.get("/balance?account=" + account)
		if err == nil && text != fmt.Sprint(want) {
			err = fmt.Errorf("a balance of %s, want %d", text, want)
		}
		return err
	}); err != nil {
		t.Fatalf("member %d: %v\n%s", p.id, err, p.tail())
	}
}

// lives writes, takes a snapshot, kills all members at once, and starts them again.
func (d *day) lives(t *testing.T) {
	t.Helper()
	for _, p := range d.all() {
		d.add(t, p, 10)
		if _, err := p.post("/snapshot", nil); err != nil {
			t.Fatalf("a snapshot of member %d: %v", p.id, err)
		}
		d.add(t, p, 1)
	}
	for _, p := range d.all() {
		p.end(t, syscall.SIGKILL)
	}
	for _, p := range d.all() {
		p.begin(t, d.list())
	}
	d.add(t, d.members[1], 100)
	for _, p := range d.all() {
		d.holds(t, p, 100+11*len(d.all()))
	}
	d.wellEverywhere(t)
}

// A directory, or a part of it behind a link, may be on any filesystem that keeps what it is given.
func TestFilesystems(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for _, row := range []struct {
		name  string
		place func(t *testing.T, p *process) error
	}{
		{"tmpfs", func(t *testing.T, p *process) error { return mount(p.path(), "tmpfs", "") }},
		{"overlay", func(t *testing.T, p *process) error {
			below := t.TempDir()
			for _, dir := range []string{"lower", "upper", "work"} {
				if err := os.Mkdir(filepath.Join(below, dir), 0o755); err != nil {
					return err
				}
			}
			return mount(p.path(), "overlay", fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", below))
		}},
		{"the log behind a link, on another filesystem", func(t *testing.T, p *process) error { return linked(t, p, "log") }},
		{"the groups behind a link, on another filesystem", func(t *testing.T, p *process) error { return linked(t, p, "groups") }},
		{"with lost+found", func(t *testing.T, p *process) error { return os.MkdirAll(filepath.Join(p.path(), "lost+found"), 0o700) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			start(t, 1, func(p *process) {
				if err := row.place(t, p); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
					t.Skipf("it cannot be mounted here: %v", err)
				} else if err != nil {
					t.Fatal(err)
				}
			}).lives(t)
		})
	}
}

func mount(dir, kind, options string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := unix.Mount(kind, dir, kind, 0, options)
	if err == nil {
		mounted = append(mounted, dir)
	}
	return err
}

// linked puts a part of a member's directory on a filesystem of its own.
func linked(t *testing.T, p *process, part string) error {
	elsewhere := filepath.Join(t.TempDir(), part)
	if err := mount(elsewhere, "tmpfs", ""); err != nil {
		return err
	}
	if err := os.MkdirAll(p.path(), 0o755); err != nil {
		return err
	}
	return os.Symlink(elsewhere, filepath.Join(p.path(), part))
}

// A static program is all that a container needs: there is no /proc, /dev, /tmp, no name and no environment.
func TestBareRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a root of its own needs root")
	}
	program := filepath.Join(programs, "static")
	compile(t, program, "CGO_ENABLED=0")
	start(t, 1, func(p *process) {
		p.root, p.as = t.TempDir(), "/member"
		to, err := os.OpenFile(filepath.Join(p.root, p.as), os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		from, err := os.Open(program)
		if err == nil {
			_, err = io.Copy(to, from)
			err = errors.Join(err, from.Close())
		}
		if err = errors.Join(err, to.Close()); err != nil {
			t.Fatal(err)
		}
	}).lives(t)
}

// compile builds the member's program in another way.
func compile(t *testing.T, to string, env ...string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", to, "./member")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// A member of a machine with 32 bits takes over the directory of one with 64, beside others, and back.
func TestOtherWordSize(t *testing.T) {
	program := filepath.Join(programs, "member386")
	compile(t, program, "GOARCH=386", "CGO_ENABLED=0")
	if err := exec.Command(program, "-h").Run(); errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.ENOENT) {
		t.Skipf("this machine does not run 386 programs: %v", err)
	}
	d := start(t, 3, func(p *process) {
		if p.id == 2 {
			p.as = program
		}
	})
	d.lives(t)
	d.members[1].as, d.members[2].as = program, ""
	for _, p := range d.all() {
		p.end(t, syscall.SIGTERM)
	}
	for _, p := range d.all() {
		p.begin(t, d.list())
	}
	d.add(t, d.members[1], 1)
	for _, p := range d.all() {
		d.holds(t, p, 134)
	}
}

// Addresses of IPv6, in two spellings, beside a name.
func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := start(t, 3, func(p *process) {
		_, port, _ := net.SplitHostPort(p.raft)
		p.raft = map[uint64]string{1: "[::1]:", 2: "[0:0:0:0:0:0:0:1]:", 3: "localhost:"}[p.id] + port
	})
	d.lives(t)
}

// A cluster of one takes commands again at once: it waits for no election timeout, here of a day.
func TestAloneAgain(t *testing.T) {
	start(t, 1, func(p *process) { p.extra = []string{"-heartbeat", "2h"} }).lives(t)
}
