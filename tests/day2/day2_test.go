package day2

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/scratch"
)

var keep = flag.Bool("keep", false, "keep the directories of the members, and print where they are")

// programs is the directory of the programs.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if programs, err = os.MkdirTemp("", "millrace-day2-programs"); err == nil {
		err = build(programs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// day is one day: the members that there are, and a client that writes all the time.
type day struct {
	root    string
	members map[uint64]*process
	client  *client
	seen    int // promised sentences
}

// TestSecondDay is the day, step by step. Each begins where the one before has ended. A promise that is not
// kept fails its step, and the day goes on; a step that cannot be done ends the day.
func TestSecondDay(t *testing.T) {
	d := &day{root: home(t), members: map[uint64]*process{}}
	t.Cleanup(func() { d.end(t); unmountAll(t) })
	for _, step := range []struct {
		name string
		do   func(*day, *testing.T)
	}{
		{"found", (*day).found},
		{"kill", (*day).kill},
		{"lose a directory, and replace it", (*day).lose},
		{"add two by token", (*day).addTwo},
		{"move all", (*day).moveAll},
		{"remove one", (*day).removeOne},
		{"back up and restore", (*day).backUp},
		{"TLS", (*day).encrypt},
		{"rotate certificates and keys", (*day).rotate},
		{"fill the disk", (*day).fillDisk},
		{"change the working directory", (*day).changeDirectory},
		{"limit descriptors", (*day).limitDescriptors},
		{"halve the memory", (*day).halveMemory},
		{"count", (*day).count},
	} {
		done := false
		t.Run(step.name, func(t *testing.T) {
			defer func() { done = done || t.Skipped() }()
			step.do(d, t)
			d.wellEverywhere(t)
			done = true
		})
		if !done {
			return
		}
	}
	t.Logf("%d commands acknowledged, each once; %d promised sentences seen", d.client.acknowledged(), d.seen)
}

// home makes the directory of the day.
func home(t *testing.T) string {
	t.Helper()
	if !*keep {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("", "millrace-day2")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the directories are in %s", dir)
	return dir
}

// end ends what runs, and shows the logs of a day that has failed.
func (d *day) end(t *testing.T) {
	if d.client != nil {
		d.client.stop()
	}
	for _, p := range d.all() {
		if p.cmd != nil {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if t.Failed() {
			t.Logf("member %d logged last:\n%s", p.id, p.tail())
		}
	}
}

// all returns the members, by id.
func (d *day) all() (all []*process) {
	for _, id := range slices.Sorted(maps.Keys(d.members)) {
		all = append(all, d.members[id])
	}
	return all
}

// running returns the members whose processes run.
func (d *day) running() []*process {
	return slices.DeleteFunc(d.all(), func(p *process) bool { return p.cmd == nil })
}

// list is the list of all members, as a flag.
func (d *day) list() string {
	var items []string
	for _, p := range d.all() {
		items = append(items, fmt.Sprintf("%d=%s", p.id, p.raft))
	}
	return strings.Join(items, ",")
}

// create makes a member that does not run yet.
func (d *day) create(t *testing.T, id uint64) *process {
	t.Helper()
	p := &process{id: id, cwd: filepath.Join(d.root, fmt.Sprint("machine", id)), dir: "data", raft: scratch.Address(t), http: scratch.Address(t)}
	if err := os.MkdirAll(p.cwd, 0o755); err != nil {
		t.Fatal(err)
	}
	d.members[id] = p
	return p
}

// see demands a sentence: a line of the text that has all words. The text comes again and again, from what it
// is asked of.
func (d *day) see(t *testing.T, of string, text func() string, words ...string) {
	t.Helper()
	var last string
	if err := within(promised, func() error {
		if last = text(); has(last, words...) == "" {
			return fmt.Errorf("%s does not say %q", of, words)
		}
		return nil
	}); err != nil {
		t.Errorf("%v; it says:\n%s", err, last)
		return
	}
	d.seen++
}

// explains demands a sentence of Explain on a member.
func (d *day) explains(t *testing.T, p *process, words ...string) {
	t.Helper()
	d.see(t, fmt.Sprintf("Explain on member %d", p.id), func() string {
		e, err := p.explain()
		if err != nil {
			return err.Error()
		}
		return e.Text
	}, words...)
}

// logs demands a line in the log of a member, behind a place.
func (d *day) logs(t *testing.T, p *process, since int, words ...string) {
	t.Helper()
	d.see(t, fmt.Sprintf("the log of member %d", p.id), func() string { return p.logged(since) }, words...)
}

// wellEverywhere demands that Explain has no cause on any member within ten seconds, and that one leads.
func (d *day) wellEverywhere(t *testing.T) {
	t.Helper()
	var ill string
	err := within(promised, func() error {
		leaders := 0
		for _, p := range d.all() {
			e, err := p.explain()
			if err != nil {
				return fmt.Errorf("member %d: %w", p.id, err)
			}
			if ill = e.Text; !e.Healthy {
				return fmt.Errorf("member %d is not well: %q", p.id, e.Causes)
			}
			if e.Leader == p.id {
				leaders++
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d members lead", leaders)
		}
		return nil
	})
	if err != nil {
		t.Errorf("Explain: %v\n%s", err, ill)
	}
}

// leader returns the member that leads.
func (d *day) leader(t *testing.T) (leader *process) {
	t.Helper()
	if err := within(maxWait, func() error {
		for _, p := range d.running() {
			if e, err := p.explain(); err == nil && e.Leader == p.id {
				leader = p
				return nil
			}
		}
		return errors.New("no member leads")
	}); err != nil {
		t.Fatal(err)
	}
	return leader
}

// follower returns a member that does not lead.
func (d *day) follower(t *testing.T) *process {
	t.Helper()
	leader := d.leader(t)
	for _, p := range d.running() {
		if p != leader {
			return p
		}
	}
	t.Fatal("there is only one member")
	return nil
}

// restart ends all members in good order and starts them again.
func (d *day) restart(t *testing.T) {
	t.Helper()
	for _, p := range d.running() {
		p.end(t, syscall.SIGTERM)
	}
	for _, p := range d.all() {
		p.begin(t, d.list())
	}
}

// write adds commands of a size through one member.
func (d *day) write(t *testing.T, p *process, n, bytes int) {
	t.Helper()
	for range n {
		if err := within(maxWait, func() error {
			_, err := p.post("/add", url.Values{"account": {"notes"}, "amount": {"0"}, "note": {fmt.Sprint(bytes)}})
			return err
		}); err != nil {
			t.Fatalf("a command of %d bytes on member %d: %v", bytes, p.id, err)
		}
	}
}

// found starts two of three members. They say for whom they wait. Then the third comes.
func (d *day) found(t *testing.T) {
	for id := range uint64(3) {
		d.create(t, id+1)
	}
	d.members[1].begin(t, d.list())
	d.members[2].begin(t, d.list())
	d.see(t, "a command on member 1", func() string {
		_, err := d.members[1].post("/add", url.Values{"account": {"a"}, "amount": {"1"}})
		return fmt.Sprint(err)
	}, "not proposed", "host 3")
	d.logs(t, d.members[1], 0, "found", "3")
	d.explains(t, d.members[1], "host 3")
	d.members[3].begin(t, d.list())
	d.leader(t)
	d.client = newClientOf(t, []*process{d.members[1], d.members[2]}) // which are members all day
}

// kill ends two leaders in turn without a word.
func (d *day) kill(t *testing.T) {
	for range 2 {
		p := d.leader(t)
		p.end(t, syscall.SIGKILL)
		d.explains(t, d.leader(t), fmt.Sprintf("host %d", p.id))
		d.client.goesOn(t, 10)
		p.begin(t, d.list())
		d.wellEverywhere(t)
	}
}

// lose removes the directory of member 3. It is refused, and the sentence names the way back.
func (d *day) lose(t *testing.T) {
	p := d.members[3]
	p.end(t, syscall.SIGTERM)
	if err := os.RemoveAll(p.path()); err != nil {
		t.Fatal(err)
	}
	since := p.mark()
	p.begin(t, d.list())
	if err := p.exits(t); err == nil {
		t.Fatal("a member without its directory has ended with status 0")
	}
	d.logs(t, p, since, "3", "token")
	if err := os.RemoveAll(p.path()); err != nil {
		t.Fatal(err)
	}
	d.client.goesOn(t, 10)
	d.replace(t)
}

var tokenText = regexp.MustCompile(`\S{40,}`)

// token makes a join token on the machine of a member.
func (d *day) token(t *testing.T, on *process, flags ...string) string {
	t.Helper()
	out := mustMillrace(t, append([]string{"members", "token", on.path()}, flags...)...)
	token := tokenText.FindString(out)
	if token == "" {
		t.Fatalf("millrace members token prints no token:\n%s", out)
	}
	return token
}

// replace gives member 3 a new directory. A token for any host is refused, and the new member says why.
func (d *day) replace(t *testing.T) {
	general := d.token(t, d.members[1])
	p := d.create(t, 3)
	p.extra = []string{"-token", general}
	p.begin(t, d.list())
	d.explains(t, p, "member 3 is there already")
	p.end(t, syscall.SIGTERM)
	p.extra = []string{"-token", d.token(t, d.members[2], "--member", "3")}
	p.begin(t, d.list())
	d.isVoter(t, 3)
}

// isVoter waits until every member lists an id as a voter.
func (d *day) isVoter(t *testing.T, id uint64) {
	t.Helper()
	for _, p := range d.running() {
		d.see(t, fmt.Sprintf("millrace members list on member %d", p.id), func() string {
			out, _ := millrace(t, "members", "list", p.path())
			return out
		}, fmt.Sprintf("%6d  voter ", id))
	}
}

// addTwo adds members 4 and 5. The directory of member 5 is a small filesystem, for a later step.
func (d *day) addTwo(t *testing.T) {
	for _, id := range []uint64{4, 5} {
		p := d.create(t, id)
		if id == 5 {
			mountSmall(t, p.path())
		}
		p.extra = []string{"-token", d.token(t, d.follower(t))}
		p.begin(t, d.list())
		d.isVoter(t, id)
	}
}

// moveAll gives all members other addresses at once.
func (d *day) moveAll(t *testing.T) {
	for _, p := range d.running() {
		p.end(t, syscall.SIGTERM)
	}
	for _, p := range d.all() {
		p.raft = scratch.Address(t)
	}
	for _, p := range d.all() {
		p.begin(t, d.list())
	}
	d.client.goesOn(t, 10)
}

// removeOne removes member 4. The others are well at once, and each of them knows how many voters may fail.
// They forget it when it has been silent for 16 election timeouts, and do not dial it after that.
func (d *day) removeOne(t *testing.T) {
	d.wellEverywhere(t)
	for _, p := range d.running() {
		d.see(t, fmt.Sprintf("millrace members list on member %d", p.id), func() string {
			out, _ := millrace(t, "members", "list", p.path())
			return out
		}, "2 more voters may fail")
	}
	gone, removed := d.members[4], map[uint64]int{}
	since := gone.mark()
	for _, p := range d.running() {
		removed[p.id] = p.mark()
	}
	mustMillrace(t, "members", "execute", d.members[1].path(), "remove", "4", "--yes")
	if err := gone.exits(t); err == nil {
		t.Fatal("a member that was removed has ended with status 0")
	}
	d.logs(t, gone, since, "was removed")
	delete(d.members, 4)
	d.wellEverywhere(t)
	for _, p := range d.running() {
		d.see(t, fmt.Sprintf("millrace members list on member %d", p.id), func() string {
			out, _ := millrace(t, "members", "list", p.path())
			return out
		}, "1 more voters may fail")
	}
	marks := map[uint64]int{}
	for _, p := range d.running() {
		if err := within(3*promised, func() error {
			if has(p.logged(removed[p.id]), "a host is forgotten", "peer=4") == "" {
				return errors.New("it is not forgotten")
			}
			return nil
		}); err != nil {
			t.Errorf("member %d of the member that was removed: %v", p.id, err)
		}
		marks[p.id] = p.mark()
	}
	d.client.goesOn(t, 100)
	for _, p := range d.running() {
		if text := p.logged(marks[p.id]); strings.Contains(text, "peer=4") {
			t.Errorf("member %d still dials the member that was removed:\n%s", p.id, text)
		}
	}
}

// backUp saves an archive of the running group, and begins another cluster with it.
func (d *day) backUp(t *testing.T) {
	archive := filepath.Join(d.root, "backup")
	d.client.pause()
	want := d.client.acknowledged()
	mustMillrace(t, "snapshot", "save", d.follower(t).path(), archive)
	d.client.resume()
	mustMillrace(t, "snapshot", "verify", archive)
	other := &day{root: filepath.Join(d.root, "restored"), members: map[uint64]*process{}}
	defer other.end(t)
	for id := range uint64(3) {
		other.create(t, id+1)
	}
	for _, p := range other.all() {
		if err := os.MkdirAll(filepath.Join(p.path(), "lost+found"), 0o700); err != nil { // a fresh volume
			t.Fatal(err)
		}
		mustMillrace(t, "snapshot", "restore", archive, p.path(), "--id", fmt.Sprint(p.id), "--members", other.list())
	}
	for _, p := range other.all() {
		p.begin(t, other.list())
	}
	if err := within(maxWait, func() error {
		text, err := other.members[2].get("/balance?account=" + account)
		if err == nil && text != fmt.Sprint(want) {
			err = fmt.Errorf("the restored cluster has a balance of %s, want %d", text, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	other.wellEverywhere(t)
	for _, p := range other.running() {
		p.end(t, syscall.SIGTERM)
	}
}

// pki is where the certificates are made.
func (d *day) pki() string { return filepath.Join(d.root, "pki") }

// give copies a file to a directory of a member, by one rename, and returns its path from the member's.
func (d *day) give(t *testing.T, name string, p *process, dir string) string {
	t.Helper()
	to := filepath.Join(p.cwd, dir)
	err := os.MkdirAll(to, 0o700)
	b, reads := os.ReadFile(filepath.Join(d.pki(), name))
	if err = errors.Join(err, reads); err == nil {
		err = os.WriteFile(filepath.Join(to, name+".new"), b, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(to, name+".new"), filepath.Join(to, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// encrypt puts TLS on the cluster, with paths that are relative to the working directory. Those of member 1
// lead through a link, as in a volume of Kubernetes.
func (d *day) encrypt(t *testing.T) {
	mustMillrace(t, "cert", "ca", "--dir", d.pki(), "--name", "second day")
	for _, p := range d.all() {
		mustMillrace(t, "cert", "member", "--dir", d.pki(), "--id", fmt.Sprint(p.id))
		at := "tls"
		if p.id == 1 {
			at = "tls-1"
			if err := os.Symlink(at, filepath.Join(p.cwd, "tls")); err != nil {
				t.Fatal(err)
			}
		}
		for flag, name := range map[string]string{"-cert": fmt.Sprintf("member-%d.pem", p.id), "-key": fmt.Sprintf("member-%d-key.pem", p.id), "-ca": "ca.pem"} {
			d.give(t, name, p, at)
			p.extra = append(p.extra, flag, filepath.Join("tls", name))
		}
	}
	d.restart(t)
	d.client.goesOn(t, 10)
}

// rotate renews the certificate of member 2, gives member 3 a new key, and exchanges the link of member 1 for
// one to another directory, while they run.
func (d *day) rotate(t *testing.T) {
	renewed, rekeyed, exchanged := d.members[2], d.members[3], d.members[1]
	marks := map[*process]int{}
	for _, p := range []*process{renewed, rekeyed, exchanged} {
		marks[p] = p.mark()
	}
	mustMillrace(t, "cert", "renew", "--dir", d.pki(), "--id", "2")
	d.give(t, "member-2.pem", renewed, "tls")
	mustMillrace(t, "cert", "renew", "--dir", d.pki(), "--id", "1")
	for _, name := range []string{"member-1.pem", "member-1-key.pem", "ca.pem"} {
		d.give(t, name, exchanged, "tls-2")
	}
	link := filepath.Join(exchanged.cwd, "tls")
	if err := errors.Join(os.Symlink("tls-2", link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	mustMillrace(t, "cert", "member", "--dir", d.pki(), "--id", "3", "--force")
	d.give(t, "member-3-key.pem", rekeyed, "tls")
	d.give(t, "member-3.pem", rekeyed, "tls")
	for _, p := range []*process{renewed, rekeyed, exchanged} {
		d.logs(t, p, marks[p], "certificates were loaded")
	}
	d.client.goesOn(t, 10)
}

// fillDisk fills the filesystem of member 5 while commands come, and makes space again.
func (d *day) fillDisk(t *testing.T) {
	p := d.members[5]
	if !isMount(p.path()) {
		t.Skip("member 5 has no filesystem of its own: that needs root")
	}
	filler := filepath.Join(p.path(), "filler")
	fill(t, filler)
	full := make(chan struct{})
	go func() { // entries until there is no space for more
		defer close(full)
		_ = within(maxWait, func() error {
			if e, err := p.explain(); err == nil && has(e.Text, "disk full") != "" {
				return nil
			}
			_, err := d.leaderOrAny().post("/add", url.Values{"account": {"notes"}, "amount": {"0"}, "note": {fmt.Sprint(2 << 20)}})
			return errors.Join(err, errors.New("it is not full yet"))
		})
	}()
	<-full
	d.explains(t, p, "disk full")
	d.explains(t, p, "make space")
	d.client.goesOn(t, 20)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
}

// leaderOrAny returns the leader, or any member while there is none.
func (d *day) leaderOrAny() *process {
	all := d.running()
	for _, p := range all {
		if e, err := p.explain(); err == nil && e.Leader == p.id {
			return p
		}
	}
	return all[0]
}

// changeDirectory changes the working directory of all members, fills a segment, takes snapshots, and starts
// all again.
func (d *day) changeDirectory(t *testing.T) {
	for _, p := range d.all() {
		elsewhere := filepath.Join(p.cwd, "elsewhere")
		if err := os.MkdirAll(elsewhere, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := p.post("/chdir", url.Values{"dir": {elsewhere}}); err != nil {
			t.Fatal(err)
		}
	}
	d.write(t, d.leader(t), 12, 6<<20) // more than a segment of 64 MiB
	for _, p := range d.all() {
		if _, err := p.post("/snapshot", nil); err != nil {
			t.Fatalf("a snapshot of member %d: %v", p.id, err)
		}
	}
	d.client.goesOn(t, 10)
	d.restart(t)
	for _, p := range d.all() {
		if names, err := os.ReadDir(filepath.Join(p.cwd, "elsewhere")); err != nil || len(names) > 0 {
			t.Errorf("member %d has written %v into another directory (%v)", p.id, names, err)
		}
	}
	d.client.goesOn(t, 10)
}

// limitDescriptors leaves a member one descriptor more than it has, while segments and snapshots want many.
func (d *day) limitDescriptors(t *testing.T) {
	p := d.follower(t)
	restore, err := leaveDescriptors(p.cmd.Process.Pid, 1)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("limits of another process: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.write(t, d.leader(t), 14, 6<<20)
	_, _ = p.post("/snapshot", nil) // it may be refused meanwhile
	d.client.goesOn(t, 20)
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	d.write(t, p, 1, 10)
	if err := within(maxWait, func() error { _, err := p.post("/snapshot", nil); return err }); err != nil {
		t.Fatalf("a snapshot of member %d, which has descriptors again: %v", p.id, err)
	}
}

// halveMemory writes a command that is larger than what smaller settings would allow, while one member is
// away, and restarts all with less memory.
func (d *day) halveMemory(t *testing.T) {
	away := d.follower(t)
	away.end(t, syscall.SIGTERM)
	d.write(t, d.leader(t), 3, 7<<20)
	for _, p := range d.all() {
		p.extra = append(p.extra, "-memory", fmt.Sprint(64<<20))
	}
	d.restart(t)
	d.write(t, away, 1, 10) // it has what was written meanwhile
}

// count compares the state with what the client was promised.
func (d *day) count(t *testing.T) {
	d.client.pause()
	defer d.client.resume()
	want := d.client.acknowledged()
	for _, p := range d.all() {
		text, err := p.get("/balance?account=" + account)
		if err != nil || text != fmt.Sprint(want) {
			t.Errorf("member %d has a balance of %s (%v), and %d commands were acknowledged", p.id, text, err, want)
		}
	}
}
