package abuse_test

import (
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
)

// Mistakes at the founding of a cluster and its groups.
var foundingMisuses = []misuse{
	{
		name: "A wrong founding list",
		done: "Host 3 starts for the first time with a `Config.Members` that lacks host 2. Hosts 1 and 2 have the whole list.",
		advice: []string{
			"start the host whose list is wrong on an empty directory, with exactly the list of the others",
		},
		make: func(s *scene) {
			a, b, c := s.trio()
			c.up(a, c)
			a.up(a, b, c)
			b.up(a, b, c)
			a.logs("refused a connection", "from=3", "founded with different lists")
			c.logs("refused a connection", "from=1", "founded with different lists")
			a.explains(diagnosis.CodeIdentityRefused, "different lists", "host 3")
			c.rejectCommand("host 1 was not heard")
		},
	},
	{
		name:   "A host with an address that is spelled differently",
		done:   "All founding lists name the same hosts, and no `Config.Cluster` is set. Host 2 spells the address of host 1 with `localhost`.",
		advice: []string{"if hosts must spell addresses differently, found the cluster with Config.Cluster"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			a.up(a, b)
			other := addresses(a, b)
			other[1] = "localhost" + a.addr[len("127.0.0.1"):]
			s.label(other[1], "<localhost:port 1>")
			b.start(b.config(other)).serve(host.GroupConfig{})
			a.logs("refused a connection", "founded with different lists")
			b.logs("refused a connection", "founded with different lists")
		},
	},
	{
		name:   "Config.Cluster is set on one host only",
		done:   "Host 1 sets `Config.Cluster`, and host 2 lets it be derived from the list.",
		advice: []string{"set Config.Cluster for all hosts or for none"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			c := a.config(addresses(a, b))
			c.Cluster = 7
			a.start(c).serve(host.GroupConfig{})
			b.up(a, b)
			a.logs("refused a connection", "set at the first start of only one of them")
			b.logs("refused a connection", "set at the first start of only one of them")
		},
	},
	{
		name:   "A host that never starts",
		done:   "A group has three members. Host 3 is never started, and a program proposes a command.",
		advice: []string{"start every member once, all at the same time; if one never comes, and no member has the founding entry, empty their directories and found the group again without it"},
		make: func(s *scene) {
			a, b, c := s.trio()
			a.up(a, b, c)
			b.up(a, b, c)
			a.rejectCommand("group 1 is not founded: host 3 was not heard")
			b.rejectCommand("group 1 is not founded: host 3 was not heard")
			a.explains(diagnosis.CodeNotFounded, "host 3 was not heard")
			b.explains(diagnosis.CodeNotFounded, "host 3 was not heard")
		},
	},
	{
		name:   "Members of a group differ",
		done:   "Hosts 1 and 2 open group 1 with members 1, 2 and 3. Host 3 opens it with `GroupConfig.Members` 1 and 3.",
		advice: []string{"open it with the members that it was founded with", "look at the logs of the hosts that lack the founding entry: the group may have stopped there, or is not open"},
		make: func(s *scene) {
			a, b, c := s.trio()
			for _, h := range s.hosts {
				h.start(h.config(addresses(a, b, c)))
			}
			c.serve(host.GroupConfig{Members: []uint64{1, 3}})
			a.serve(host.GroupConfig{})
			b.serve(host.GroupConfig{})
			c.stops("was founded with members [1 2 3]", "of host 3 is [1 3]")
			c.explains(diagnosis.CodeStopped, "was founded with members [1 2 3]")
			a.rejectCommand("host 3 does not have the founding entry")
			a.explains(diagnosis.CodeNotFounded, "host 3 does not have the founding entry")
		},
	},
	{
		name:   "Leases are set on some members only",
		done:   "Hosts 1 and 2 open group 1 with `GroupConfig.Leases`, and host 3 without.",
		advice: []string{"all members need the setting with which it was founded"},
		make: func(s *scene) {
			a, b, c := s.trio()
			for _, h := range s.hosts {
				h.start(h.config(addresses(a, b, c)))
			}
			a.serve(host.GroupConfig{Leases: true})
			b.serve(host.GroupConfig{Leases: true})
			a.until("founding entry", func() bool { return a.group().Founding().Found })
			c.serve(host.GroupConfig{})
			c.stops("was founded with Leases true")
			a.rejectCommand("host 3 does not have the founding entry")
			a.explains(diagnosis.CodeNotFounded, "host 3 does not have the founding entry")
		},
	},
	{
		name:   "A shorter election timeout under leases",
		done:   "All members open group 1 with `GroupConfig.Leases`. `Config.ElectionTimeout` is 200 ms on hosts 1 and 2, and 100 ms on host 3.",
		advice: []string{"set it to 200ms or more on every host"},
		make: func(s *scene) {
			a, b, c := s.trio()
			for _, h := range s.hosts {
				config := h.config(addresses(a, b, c))
				if h == c {
					config.ElectionTimeout = 100 * time.Millisecond
				}
				h.start(config)
			}
			a.serve(host.GroupConfig{Leases: true})
			b.serve(host.GroupConfig{Leases: true})
			a.until("founding entry", func() bool { return a.group().Founding().Found })
			c.serve(host.GroupConfig{Leases: true})
			c.stops("Config.ElectionTimeout of host 3 makes it")
			a.rejectCommand("host 3 does not have the founding entry")
			a.explains(diagnosis.CodeNotFounded, "host 3 does not have the founding entry")
		},
	},
}
