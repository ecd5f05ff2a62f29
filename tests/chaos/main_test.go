//go:build linux

package chaos

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var (
	firstSeed  = flag.Uint64("seed", 1, "the `seed` of the first episode; each later one adds one")
	episodes   = flag.Int("episodes", 2, "how many `episodes` TestChaos and TestService run")
	netWanted  = flag.String("net", "auto", "`where` the hosts are: namespaces, loopback, or auto: namespaces if this user may make them")
	only       = flag.String("faults", "", "draw only these `kinds` of faults, with commas between them; default all")
	size       = flag.Int("hosts", 0, "how many `hosts` found a cluster: 3 or 5; 0: the seed draws it")
	withWanted = flag.String("with", "", "the `setting` of TestService: compactions, snapshots, tls, with commas between them, or nothing; default what the seed draws")
	rate       = flag.Int("rate", 1500, "how many `operations` a second the clients begin, if none waits")
	root       = flag.String("dir", "", "`directory` in which each episode makes its own; default a new one under the system's")
	keep       = flag.Bool("keep", false, "keep the directories of episodes that pass")
)

// envInside names what the process that runs the tests is in: the namespaces that its parent made for it.
const envInside = "CHAOS_INSIDE"

func init() {
	// The first goroutine keeps the first thread, whose network namespace is the one that others mean when
	// they name the process. So no goroutine that changes the namespace of its thread runs there.
	runtime.LockOSThread()
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := rejectFlags(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(2)
	}
	os.Exit(enter(m))
}

// rejectFlags says which flag cannot be what it is, or returns nil.
func rejectFlags() error {
	_, withWrong := parseSetting(*withWanted)
	switch {
	case *netWanted != "auto" && *netWanted != "namespaces" && *netWanted != "loopback":
		return fmt.Errorf("-net is %q, want auto, namespaces or loopback", *netWanted)
	case *size != 0 && *size != 3 && *size != 5:
		return fmt.Errorf("-hosts is %d, want 3 or 5, or 0 for what the seed draws", *size)
	case *withWanted != "" && withWrong != nil:
		return withWrong
	case *episodes < 1:
		return fmt.Errorf("-episodes is %d, want at least 1", *episodes)
	case *rate < 1 || *rate > maxRate:
		return fmt.Errorf("-rate is %d, want 1 to %d operations a second", *rate, maxRate)
	}
	return nil
}

// maxRate is more than two cores can do.
const maxRate = 20_000

// enter runs the tests in namespaces of their own (processes, mounts, network), if it can make them. They are
// the cleaning up: when the process that runs the tests ends, in whichever way, the kernel ends all its
// children and removes its mounts, loop devices and networks.
func enter(m *testing.M) int {
	switch inside := os.Getenv(envInside) != ""; {
	case inside:
		if err := prepare(); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: the namespaces cannot be used: %v\n", err)
			return exitUnusable
		}
		return m.Run()
	case *netWanted == "loopback":
		return runOnLoopback(m, "-net loopback")
	}
	code, err := reenter()
	if err == nil {
		return code
	}
	if *netWanted == "namespaces" {
		fmt.Fprintf(os.Stderr, "chaos: no namespaces: %v\n", err)
		return 1
	}
	return runOnLoopback(m, err.Error())
}

// exitUnusable is the status of a process that cannot use the namespaces that it was given.
const exitUnusable = 97

// runOnLoopback runs the tests without namespaces, and keeps the reason.
func runOnLoopback(m *testing.M, why string) int {
	theWorld.why = why
	theWorld.look()
	var err error
	if theWorld.net, err = newLoopback(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		return 1
	}
	defer theWorld.net.close()
	return m.Run()
}

// reenter runs this program again in new namespaces, and returns its exit status. The error says why there
// are no namespaces.
func reenter() (int, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 0, errors.New("the program ip is missing (Debian package iproute2)")
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("this user may not make them: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				return 1, nil
			}
			if cmd.ProcessState.ExitCode() == exitUnusable {
				return 0, errors.New("they were made and cannot be used")
			}
			return max(cmd.ProcessState.ExitCode(), 0), nil
		}
	}
}

// prepare makes the new namespaces usable: mounts stay in them, /proc shows their processes, and each host
// has a network.
func prepare() (err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	theWorld.namespaces = true
	theWorld.look()
	theWorld.net, err = newNamespaces(theWorld)
	return err
}

// command is what runs an episode again.
func command(test string, seed uint64) string {
	args := []string{"cd tests/chaos && go test -count=1 -v -run '^" + test + "$' -timeout 0 -args", fmt.Sprintf("-seed %d -episodes 1", seed)}
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "net", "faults", "hosts", "rate", "with":
			args = append(args, fmt.Sprintf("-%s %s", f.Name, f.Value))
		}
	})
	return strings.Join(args, " ")
}
