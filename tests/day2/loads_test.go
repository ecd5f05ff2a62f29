package day2

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/scratch"
)

// What a member has to carry: a state larger than its memory, a machine that is slow, members that are away.

// resident returns the most memory that a process had, in bytes.
func resident(t *testing.T, p *process) int64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "status"))
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// A state of 256 MiB goes through processes that may have 64 MiB of heap: it is taken, sent to a member for
// which the log does not reach back while clients write without a pause, and started from.
func TestStateIsLargerThanMemory(t *testing.T) {
	const state, most = 256 << 20, 200 << 20
	d := start(t, 3, func(p *process) {
		p.env = []string{"GOMEMLIMIT=64MiB"}
		p.extra = []string{"-pad", fmt.Sprint(state), "-memory", fmt.Sprint(16 << 20), "-snapshot-bytes", fmt.Sprint(int64(1 << 40)), "-keep-bytes", "1"}
	})
	away := d.members[3]
	if d.leader(t) == away {
		away = d.members[2]
	}
	away.end(t, syscall.SIGKILL)
	d.client = newClientOf(t, slicesWithout(d.running(), away))
	// A log is cut at marks, which are 256 KiB of commands apart. Between the last command that the member has
	// and the snapshot there must be two, or the log still reaches back.
	d.write(t, d.leader(t), 4, 400<<10)
	d.client.goesOn(t, 20)
	for _, p := range d.running() {
		if err := within(maxWait, func() error { _, err := p.slowly("/snapshot"); return err }); err != nil {
			t.Fatal(err)
		}
	}
	since := away.mark()
	away.begin(t, d.list())
	d.client.goesOn(t, 20)
	d.client.pause()
	want := d.client.acknowledged()
	d.client.resume()
	for _, p := range d.all() {
		d.atLeast(t, p, want)
	}
	d.logs(t, away, since, "a snapshot is installed")
	d.wellEverywhere(t)
	for _, p := range d.all() {
		if have := resident(t, p); have > most {
			t.Errorf("member %d had %d MiB, want at most %d", p.id, have>>20, most>>20)
		}
	}
}

// atLeast demands a balance that is not below one.
func (d *day) atLeast(t *testing.T, p *process, want int64) {
	t.Helper()
	if err := within(maxWait, func() error {
		text, err := p.get("/balance?account=" + account)
		if err != nil {
			return err
		}
		if have, err := strconv.ParseInt(text, 10, 64); err != nil || have < want {
			return fmt.Errorf("a balance of %s, want %d at least", text, want)
		}
		return nil
	}); err != nil {
		t.Fatalf("member %d: %v", p.id, err)
	}
}

// slicesWithout returns the processes but one.
func slicesWithout(all []*process, one *process) (rest []*process) {
	for _, p := range all {
		if p != one {
			rest = append(rest, p)
		}
	}
	return rest
}

// One follower applies slowly while the others write 120 MB. It does not hold them up, its memory is bounded,
// and it is level when it is fast again.
func TestSlowApplyInBoundedMemory(t *testing.T) {
	const most = 200 << 20
	d := start(t, 3, func(p *process) { p.extra = []string{"-memory", fmt.Sprint(32 << 20)} })
	slow := d.follower(t)
	if _, err := slow.post("/delay", url.Values{"delay": {"500ms"}}); err != nil {
		t.Fatal(err)
	}
	leader := d.leader(t)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 75 {
				if _, err := leader.post("/add", url.Values{"account": {"notes"}, "amount": {"1"}, "note": {fmt.Sprint(200 << 10)}}); err != nil {
					t.Errorf("a command beside a slow follower: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	if have := resident(t, slow); have > most {
		t.Errorf("the slow member had %d MiB, want at most %d", have>>20, most>>20)
	}
	if _, err := slow.post("/delay", url.Values{"delay": {"0s"}}); err != nil {
		t.Fatal(err)
	}
	if err := within(maxWait, func() error { // it decodes what it has missed, which takes as long as the machine is busy
		text, err := slow.get("/balance?account=notes")
		if err == nil && text != "600" {
			err = fmt.Errorf("a balance of %s, want 600", text)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d.add(t, slow, 1)
	d.holds(t, slow, 1)
	d.wellEverywhere(t)
}

// Clients with short deadlines come to a member without a quorum. Nothing of them stays.
func TestTimeoutsLeaveNothing(t *testing.T) {
	d := start(t, 2, nil)
	alone := d.members[1]
	d.add(t, alone, 1)
	d.members[2].end(t, syscall.SIGKILL)
	goroutines := func() int {
		text, err := alone.get("/goroutines")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := goroutines()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 60 {
				if _, err := alone.post("/add", url.Values{"account": {"a"}, "amount": {"1"}, "timeout": {"20ms"}}); err == nil {
					t.Error("a command without a quorum was acknowledged")
				}
			}
		})
	}
	clients.Wait()
	browser.CloseIdleConnections()
	if err := within(promised, func() error {
		if now := goroutines(); now > before+8 {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if have := resident(t, alone); have > 200<<20 {
		t.Errorf("it had %d MiB", have>>20)
	}
	d.members[2].begin(t, d.list())
	d.add(t, alone, 1)
	d.wellEverywhere(t)
}

// A member that hangs is removed under load, and goes on later. It learns of its removal, and disturbs no
// one.
func TestHungMemberIsRemoved(t *testing.T) {
	d := start(t, 3, nil)
	hung := d.follower(t)
	rest := slicesWithout(d.all(), hung)
	d.client = newClientOf(t, rest)
	if err := hung.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.client.goesOn(t, 10)
	since := hung.mark()
	mustMillrace(t, "members", "execute", rest[0].path(), "remove", fmt.Sprint(hung.id), "--yes")
	d.client.goesOn(t, 20)
	if err := hung.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if hung.exits(t) == nil {
		t.Error("it has ended with status 0")
	}
	d.logs(t, hung, since, "was removed")
	delete(d.members, hung.id)
	d.client.goesOn(t, 10)
	d.wellEverywhere(t)
}

// A member that is not there is not added: the plan is refused with a sentence, and commands go on.
func TestUnreachableMemberIsNotAdded(t *testing.T) {
	d := start(t, 1, nil)
	p := d.members[1]
	out, status := millrace(t, "members", "execute", p.path(), "add", "2="+scratch.Address(t), "--yes")
	if status == 0 || !strings.Contains(out, "host 2") {
		t.Errorf("status %d, want a refusal that names host 2:\n%s", status, out)
	}
	d.add(t, p, 1)
	d.holds(t, p, 1)
	d.wellEverywhere(t)
}
