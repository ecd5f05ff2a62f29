package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/peers"
)

// peerProgram is one system of bench peers that is another project's: how its program is built from the
// source tree, and with what argument it is started.
type peerProgram struct {
	name      string
	kind      peers.Kind
	dir       string // below peerSources
	build     buildFunc
	argument  string // of the program, after what build returns
	minWarmup time.Duration
}

// otherPrograms is the module of the programs with other projects' code.
const otherPrograms = "tests/compare/others"

// peerSources is a directory of programs, each of a system.
const peerSources = otherPrograms + "/peers"

// ratisWarmup is the least that a JVM needs before its figures mean anything. It still gets faster then.
const ratisWarmup = 5 * time.Second

var peerPrograms = []peerProgram{
	{name: "etcd-raft-basic", kind: peers.GoPeer, dir: "etcdraft", build: buildGo, argument: "basic"},
	{name: "etcd-raft-parallel", kind: peers.GoPeer, dir: "etcdraft", build: buildGo, argument: "parallel"},
	{name: "etcd-raft-async", kind: peers.GoPeer, dir: "etcdraft", build: buildGo, argument: "async"},
	{name: "hashicorp-wal", kind: peers.GoPeer, dir: "hashicorp", build: buildGo, argument: "wal"},
	{name: "hashicorp-bolt", kind: peers.GoPeer, dir: "hashicorp", build: buildGo, argument: "bolt"},
	{name: "etcd", kind: peers.GoPeer, dir: "etcd", build: buildGo, argument: "server"},
	{name: "raft-rs-default", kind: peers.OtherPeer, dir: "raftrs", build: buildCargo, argument: "default"},
	{name: "raft-rs-prefilled", kind: peers.OtherPeer, dir: "raftrs", build: buildCargo, argument: "prefilled"},
	{name: "raft-rs-tasks", kind: peers.OtherPeer, dir: "raftrs", build: buildCargo, argument: "tasks"},
	{name: "ratis", kind: peers.OtherPeer, dir: "ratis", build: buildMaven, argument: "default", minWarmup: ratisWarmup},
}

// defaultSystems are measured if the user names none.
func defaultSystems() []string {
	names := []string{"millrace", "millrace-batch"}
	for _, p := range peerPrograms {
		names = append(names, p.name)
	}
	return names
}

func allSystems() []string {
	return append([]string{"millrace-basic", "millrace-parallel"}, defaultSystems()...)
}

// findSystems fills in what can be measured, and why the rest cannot.
func (f peersFlags) findSystems(ctx context.Context, plan *peers.Plan, b *builder) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	own := func(name string, kind peers.Kind) peers.System {
		return peers.System{Name: name, Kind: kind, Command: []string{self, peerChildVerb, name}}
	}
	plan.Systems = []peers.System{own(bench.BareName, peers.Baseline), own(bench.FullBareName, peers.Baseline), own(bench.BareCohortName, peers.Baseline)}
	names, err := f.chosen()
	if err != nil {
		return err
	}
	for _, name := range names {
		if target, ok := ownSystems[name]; ok {
			if !bench.IsBaseline(target) {
				plan.Systems = append(plan.Systems, own(name, peers.Own))
			}
			continue
		}
		peer := peerPrograms[slices.IndexFunc(peerPrograms, func(p peerProgram) bool { return p.name == name })]
		command, err := b.program(ctx, name, peerSources+"/"+peer.dir, peer.build)
		switch {
		case errors.Is(err, errInterrupted):
			return err
		case err != nil:
			plan.Missing = append(plan.Missing, fmt.Sprintf("%s: %v", name, err))
		default:
			command = append(slices.Clone(command), peer.argument)
			plan.Systems = append(plan.Systems, peers.System{Name: name, Kind: peer.kind, Command: command, MinWarmup: peer.minWarmup})
		}
	}
	return nil
}

// buildCargo builds with the versions of Cargo.lock. What it compiles is kept in the user's cache directory,
// as go does with its own: a build from nothing takes minutes.
func buildCargo(ctx context.Context, dir, _ string) ([]string, error) {
	cargo, err := exec.LookPath("cargo")
	if err != nil {
		home, _ := os.UserHomeDir() // where rustup puts it; PATH may not have it
		if cargo, err = exec.LookPath(filepath.Join(home, ".cargo", "bin", "cargo")); err != nil {
			return nil, errors.New("it is built with cargo, which is not in PATH")
		}
	}
	cache, err := buildCache("raftrs")
	if err != nil {
		return nil, err
	}
	build := exec.Command(cargo, "build", "--release", "--locked", "--quiet", "--target-dir", cache)
	return []string{filepath.Join(cache, "release", "raftrs")}, runBuild(ctx, build, dir)
}

// buildMaven builds with the versions of pom.xml, and copies what it depends on beside it.
func buildMaven(ctx context.Context, dir, _ string) ([]string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errors.New("it needs java, which is not in PATH")
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return nil, errors.New("it is built with mvn, which is not in PATH")
	}
	cache, err := buildCache("ratis")
	if err != nil {
		return nil, err
	}
	build := exec.Command(mvn, "--quiet", "--batch-mode", "-Dmillrace.target="+cache, "compile")
	classpath := filepath.Join(cache, "classes") + string(os.PathListSeparator) + filepath.Join(cache, "lib", "*")
	return []string{java, "-Xmx4g", "-XX:+UseParallelGC", "-cp", classpath, "millrace.Ratis"}, runBuild(ctx, build, dir)
}

// buildCache is where a build keeps what it compiled for the next time.
func buildCache(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "millrace-peers", name)
	return dir, os.MkdirAll(dir, 0o700)
}

func runBuild(ctx context.Context, build *exec.Cmd, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the source tree has no %s", dir)
	}
	ctx, cancel := context.WithTimeout(ctx, peerBuildTimeout)
	defer cancel()
	bounded := exec.CommandContext(ctx, build.Path, build.Args[1:]...)
	bounded.Dir, bounded.Env = dir, build.Env
	out, err := bounded.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s in %s failed (%w): %s", filepath.Base(build.Path), dir, err, firstComplaint(string(out)))
	}
	return nil
}

// peerBuildTimeout bounds a build that starts from nothing, downloads and all.
const peerBuildTimeout = 15 * time.Minute
