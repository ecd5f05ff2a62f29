package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
)

// ownerVerb starts members in a directory, says so, and waits until it is killed.
const ownerVerb = "owner-of-a-test"

func runOwner(dir string) (status int) {
	err := processes(nil).In(context.Background(), dir, rig.Setup{Hosts: 3, Transport: rig.TCP, Pipeline: pipeline.Async{}}, func(experiment.Abroad) error {
		fmt.Println("they run")
		select {}
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// processes starts members as processes of this program. change changes what each is told.
func processes(change func(p *remote.MemberPlan)) remote.Processes {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return remote.Processes{Command: func(p remote.MemberPlan) []string {
		if change != nil {
			change(&p)
		}
		text, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		return []string{program, memberVerb, string(text)}
	}}
}

// pids finds the members that run, by what they were told.
type pids struct {
	mu  sync.Mutex
	dir string
}

func (p *pids) note(plan *remote.MemberPlan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir = plan.Dir
}

// running lists the processes whose command line names the directory of the members and has a text.
func (p *pids) running(t *testing.T, has string) (all []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("there is no /proc")
	}
	for _, e := range entries {
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), memberVerb) && strings.Contains(string(line), p.dir) && strings.Contains(string(line), has) {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

// Members in processes are there while a point is measured, over TLS, and gone afterwards, whatever the point
// has done.
func TestProcesses(t *testing.T) {
	setup := rig.Setup{Hosts: 3, Transport: rig.TLS, Pipeline: pipeline.Async{}}
	var of pids
	for _, end := range []error{nil, errors.New("the point failed")} {
		err := processes(of.note).In(t.Context(), t.TempDir(), setup, func(c experiment.Abroad) error {
			window(t, c, c.Ledger(), nil)
			if n := len(of.running(t, "")); n != 3 {
				t.Errorf("%d processes, want 3", n)
			}
			if c.Machines() != nil {
				t.Error("members on this machine have environments of their own")
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Errorf("%v, want %v", err, end)
		}
		if left := of.running(t, ""); left != nil {
			t.Errorf("processes are left: %v", left)
		}
	}
}

// signal sends a signal, by functions that every system has.
func signal(pid int, s os.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(s)
}

// A follower that is killed does not end the load; a process that fails by itself, or does not come up, ends
// it, with what it said.
func TestProcessesDie(t *testing.T) {
	setup := rig.Setup{Hosts: 3, Transport: rig.TCP, Pipeline: pipeline.Async{}}
	var of pids
	err := processes(of.note).In(t.Context(), t.TempDir(), setup, func(c experiment.Abroad) error {
		window(t, c, c.Ledger(), func(context.Context) error {
			for _, pid := range of.running(t, `"ID":3`) {
				if err := signal(pid, syscall.SIGKILL); err != nil {
					return err
				}
			}
			return nil
		})
		if remarks := text(c.Remarks()); !strings.Contains(remarks, "not every member was verified: member 3") {
			t.Errorf("%s", remarks)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = processes(of.note).In(t.Context(), t.TempDir(), setup, func(c experiment.Abroad) error {
		for _, pid := range of.running(t, `"ID":3`) {
			if err := signal(pid, syscall.SIGQUIT); err != nil { // a Go program ends with a dump
				return err
			}
		}
		for look := time.NewTicker(time.Millisecond); len(of.running(t, `"ID":3`)) > 0; <-look.C {
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "the process of member 3 has ended with exit status 2: ") {
		t.Errorf("a member that fails by itself: %v", err)
	}
	err = processes(func(p *remote.MemberPlan) {
		if p.ID == 2 {
			p.Dir = "/does/not/exist"
		}
	}).In(t.Context(), t.TempDir(), setup, func(experiment.Abroad) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "the process of member 2 has ended with exit status 1: Dir: cannot use /does/not/exist") {
		t.Errorf("%v", err)
	}
}

// When the process that has started members is killed, they end by themselves.
func TestOwnerDies(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	owner := exec.Command(program, ownerVerb, dir)
	owner.Stderr = os.Stderr
	output, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || line != "they run\n" {
		t.Errorf("%q, %v", line, err)
	}
	of := pids{dir: dir}
	if n := len(of.running(t, "")); n != 3 {
		t.Errorf("%d members run, want 3", n)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = owner.Wait() // it was killed
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for late := time.After(30 * time.Second); len(of.running(t, "")) > 0; {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("members are left: %v", of.running(t, ""))
		}
	}
}
