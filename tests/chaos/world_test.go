//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// world is what the machine and the user's rights allow, and the one place where programs are started.
type world struct {
	namespaces bool   // the tests run in namespaces of their own
	why        string // or why they do not
	net        network
	cuts       string // what cuts links
	strace     string // path of the program, "" if it is missing
	mkfs       string // of mkfs.ext4
	starts     chan func()

	mu      sync.Mutex
	running map[int]bool // process ids of the hosts that run
}

var theWorld = &world{running: map[int]bool{}}

// look finds out what can be done here.
func (w *world) look() {
	w.strace, _ = exec.LookPath("strace")
	if w.strace != "" && exec.Command(w.strace, "-qq", "-f", "--seccomp-bpf", "-o", os.DevNull, "-e", "trace=fdatasync", "true").Run() != nil {
		w.strace = "" // it may not trace
	}
	if w.namespaces && os.Geteuid() == 0 && canMountDisks() {
		w.mkfs, _ = exec.LookPath("mkfs.ext4")
	}
	w.starts = make(chan func())
	go w.startAll()
}

// canMountDisks reports whether this process has the rights of the machine's root, and not only those of a
// namespace of users.
func canMountDisks() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
}

// String says what the episodes run in.
func (w *world) String() string {
	missing := []string{}
	if w.strace == "" {
		missing = append(missing, "strace is missing or may not trace: no errors of system calls")
	}
	if w.mkfs == "" {
		missing = append(missing, "no loop device, or no mkfs.ext4: no full disk")
	}
	place := "hosts in network namespaces of their own, links cut by " + w.cuts
	if !w.namespaces {
		place = fmt.Sprintf("hosts on loopback addresses with a proxy on each directed link (%s): no new members, no second copy of a host", w.why)
	}
	return strings.Join(append([]string{place}, missing...), "; ")
}

// startAll starts programs, on a thread that lives as long as this process: it may be moved to the network
// namespace of a host, and the death of it is what the kernel tells the programs when this process dies.
func (w *world) startAll() {
	runtime.LockOSThread()
	for start := range w.starts {
		start()
	}
}

// in runs f on a thread that is in a network namespace; nil is that of this process.
func (w *world) in(ns *os.File, f func() error) (err error) {
	done := make(chan struct{})
	w.starts <- func() {
		defer close(done)
		if ns == nil {
			err = f()
			return
		}
		home, openErr := os.Open("/proc/thread-self/ns/net")
		if err = openErr; err != nil {
			return
		}
		defer home.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			panic(fmt.Sprintf("chaos: a thread cannot return to its network namespace: %v", back))
		}
	}
	<-done
	return err
}

// start starts a program in a network namespace.
func (w *world) start(ns *os.File, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return w.in(ns, cmd.Start)
}

// run runs a program to its end in a network namespace. The error has what it printed.
func (w *world) run(ns *os.File, stdin, name string, args ...string) error {
	_, err := w.output(ns, stdin, name, args...)
	return err
}

// output runs a program to its end in a network namespace, and returns what it printed.
func (w *world) output(ns *os.File, stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &out, &out, strings.NewReader(stdin)
	if err := w.start(ns, cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdin, out.Bytes())
	}
	return out.String(), nil
}

// note keeps the ids of processes that run, so that an interrupt can end them where no namespace does.
func (w *world) note(pid int, runs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if runs {
		w.running[pid] = true
	} else {
		delete(w.running, pid)
	}
}

// killAll ends every host that still runs.
func (w *world) killAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pid := range w.running {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
