package abuse_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
)

// Mistakes with the directories of hosts.
var directoryMisuses = []misuse{
	{
		name:   "Two processes on one directory",
		done:   "Host 1 runs, and is started once more with the same configuration.",
		advice: []string{"stop it first"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			a.up(a, b)
			s.fails("Host 1, the second Open", a.try(a.config(addresses(a, b))))
		},
	},
	{
		name:   "Two hosts with one id",
		done:   "A cluster of three runs. Another host 2 is started, on an empty directory and another address.",
		advice: []string{"if two hosts run under one id, stop one of them"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			double := s.host(2)
			double.name = "The second host 2"
			double.start(double.config(addresses(a, b, c))).serve(host.GroupConfig{})
			a.logs("refused a connection", "from=2", "another directory")
			double.logs("cannot connect to a peer", "peer=1", "another directory")
			double.stops("a majority of its members, refuse the directory")
			double.explains(diagnosis.CodeIdentityRefused, "refuse the directory")
		},
	},
	{
		name:   "A wiped directory under the old id",
		done:   "The disk of host 2 was replaced, and host 2 starts on an empty directory as before.",
		advice: []string{"replace the lost directory by its new one on another host (Plan, ReplaceMember)"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			b.wipe()
			b.up(a, b, c)
			a.logs("refused a connection", "from=2", "another directory")
			b.logs("cannot connect to a peer", "peer=1", "another directory")
			b.stops("a majority of its members, refuse the directory")
			a.explains(diagnosis.CodeIdentityRefused, "host 2", "another directory")
		},
	},
	{
		name:   "A copy of a directory runs beside the original",
		done:   "The directory of host 2 was copied while it was down. Host 2 runs again, and then the copy is started on another machine.",
		advice: []string{"stop it, and start the host on its newest directory"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			b.close()
			double := s.host(2)
			double.name = "The copy of host 2"
			s.copyDir(double, b)
			b.up(a, b, c)
			s.work("the original is back", a, b, c)
			a.remembers(1, 2)
			c.remembers(1, 2)
			double.start(double.config(addresses(a, double, c))).serve(host.GroupConfig{})
			a.logs("refused a connection", "from=2", "a copy or an old backup")
			double.logs("cannot connect to a peer", "peer=1", "a copy or an old backup")
			a.explains(diagnosis.CodeIdentityRefused, "host 2", "a copy or an old backup")
		},
	},
	{
		name:   "A directory restored from a copy",
		done:   "The directory of host 2 was copied with a backup tool. Host 2 runs for a while longer, loses its disk, and starts on the copy.",
		advice: []string{"if that is lost, start the host on an empty directory with Joins set, and replace the lost directory by it on another host (Plan, ReplaceMember)"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			b.close()
			backup := s.host(2)
			s.copyDir(backup, b)
			b.up(a, b, c)
			s.work("after the backup", a, b, c)
			a.remembers(1, 2)
			c.remembers(1, 2)
			b.wipe()
			s.copyDir(b, backup)
			b.up(a, b, c)
			a.logs("refused a connection", "from=2", "a copy or an old backup")
			b.logs("cannot connect to a peer", "peer=1", "a copy or an old backup")
			b.explains(diagnosis.CodeIdentityRefused, "host 1 refuses this host", "a copy or an old backup")
		},
	},
	{
		name:   "A restored directory that is started again and again",
		done:   "Host 2 has lost its disk and was started on an old backup. All others refuse it, and a supervisor starts it again, until it has started more often than the original had.",
		advice: []string{"if that is lost, start the host on an empty directory with Joins set, and replace the lost directory by it on another host (Plan, ReplaceMember)"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			b.close()
			backup := s.host(2)
			s.copyDir(backup, b)
			b.up(a, b, c)
			s.work("after the backup", a, b, c)
			a.remembers(1, 2)
			c.remembers(1, 2)
			b.wipe()
			s.copyDir(b, backup)
			for range 4 {
				b.start(b.config(addresses(a, b, c))).close()
			}
			b.up(a, b, c)
			a.logs("refused a connection", "from=2", "it is in its life 6, but its life 2 was another one")
			b.logs("cannot connect to a peer", "peer=1", "it is in its life 6, but its life 2 was another one")
			b.explains(diagnosis.CodeIdentityRefused, "host 1 refuses this host", "a copy or an old backup")
		},
	},
	{
		name:   "The log of another host in a directory",
		done:   "The directories of hosts 1 and 2 are moved, and `log` of host 1 is put into the directory of host 2.",
		advice: []string{"put back the one that belongs to this directory"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			a.close()
			b.close()
			s.removeAll(b.path("log"))
			s.copyTree(b.path("log"), a.path("log"))
			s.fails("Host 2, Open", b.try(b.config(addresses(a, b))))
		},
	},
	{
		name:   "A directory without its log",
		done:   "Someone has deleted `log` in the directory of host 2, to make space.",
		advice: []string{"restore the log; if it is lost, start the host on an empty directory with Joins set"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			b.close()
			s.removeAll(b.path("log"))
			s.fails("Host 2, Open", b.try(b.config(addresses(a, b))))
		},
	},
	{
		name:   "A log without its identity",
		done:   "`identity.json` in the directory of host 2 is deleted.",
		advice: []string{"restore that file"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			b.close()
			s.removeAll(b.path("identity.json"))
			s.fails("Host 2, Open", b.try(b.config(addresses(a, b))))
		},
	},
	{
		name:   "A damaged identity",
		done:   "`identity.json` in the directory of host 2 is cut off.",
		advice: []string{"restore it from a backup before you start the host"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			b.close()
			if err := os.Truncate(b.path("identity.json"), 20); err != nil {
				s.Fatal(err)
			}
			s.fails("Host 2, Open", b.try(b.config(addresses(a, b))))
		},
	},
	{
		name:   "The directory of a newer program",
		done:   "A newer version of the program has written `identity.json`, and the older one is put back.",
		advice: []string{"start the program that wrote the file"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			b.close()
			s.edit(b.path("identity.json"), `"version":3`, `"version":4`)
			s.fails("Host 2, Open", b.try(b.config(addresses(a, b))))
		},
	},
	{
		name:   "A damaged record of the other hosts",
		done:   "`peers.json` in the directory of host 2 is cut off.",
		advice: []string{"restore it, or delete it if all other hosts still have their original directories"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			b.close()
			if err := os.Truncate(b.path("peers.json"), 20); err != nil {
				s.Fatal(err)
			}
			s.fails("Host 2, Open", b.try(b.config(addresses(a, b))))
		},
	},
	{
		name:   "The directory of another host",
		done:   "Host 2 is started with the directory of host 1.",
		advice: []string{"give each host its own directory"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			a.close()
			b.close()
			c := b.config(addresses(a, b))
			c.Dir = a.path("")
			s.fails("Host 2, Open", b.try(c))
		},
	},
	{
		name:   "Config.Cluster is changed later",
		done:   "A cluster was founded with `Config.Cluster` 7, and host 1 starts again with 8, and then without.",
		advice: []string{"do not change a cluster's number after the first start", "Config.Cluster is 0; set it to 7"},
		make: func(s *scene) {
			a := s.host(1)
			c := a.config(addresses(a))
			c.Cluster = 7
			a.start(c).serve(host.GroupConfig{})
			s.work("first", a)
			a.close()
			c.Cluster = 8
			s.fails("Host 1, Open", a.try(c))
			c.Cluster = 0
			s.fails("Host 1, Open", a.try(c))
		},
	},
}

// path returns a file in the directory of the host.
func (a *actor) path(name string) string { return filepath.Join(a.dir, "data", name) }

// copyDir makes the directory of a host a copy of that of another one, which does not run.
func (s *scene) copyDir(to, from *actor) {
	s.T.Helper()
	s.copyTree(to.path(""), from.path(""))
}

func (s *scene) copyTree(to, from string) {
	s.T.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) removeAll(path string) {
	s.T.Helper()
	if err := os.RemoveAll(path); err != nil {
		s.Fatal(err)
	}
}

// edit replaces a part of a file, which must be there.
func (s *scene) edit(path, was, now string) {
	s.T.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), was) {
		s.Fatalf("%s has %q, want %s (%v)", path, text, was, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), was, now, 1)), 0o600); err != nil {
		s.Fatal(err)
	}
}

// readJSON reads a file if there is one.
func readJSON(path string, v any) bool {
	text, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(text, v) == nil
}
