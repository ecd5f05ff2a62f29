package abuse_test

import (
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
)

// Mistakes with addresses, and with the number of a cluster.
var addressMisuses = []misuse{
	{
		name:   "A wrong cluster number",
		done:   "Hosts 1 and 2 start for the first time with `Config.Cluster` 7, and host 3 with 8.",
		advice: []string{"correct the address, or start the host whose number is wrong on an empty directory with the number of the others"},
		make: func(s *scene) {
			a, b, c := s.trio()
			for _, h := range s.hosts {
				config := h.config(addresses(a, b, c))
				if config.Cluster = 7; h == c {
					config.Cluster = 8
				}
				h.start(config).serve(host.GroupConfig{})
			}
			a.logs("refused a connection", "from=3", "hosts 1 and 3 belong to different clusters, 7 and 8")
			c.logs("refused a connection", "from=1", "hosts 3 and 1 belong to different clusters, 8 and 7")
			c.explains(diagnosis.CodeIdentityRefused, "host 1", "different clusters")
		},
	},
	{
		name:   "An address of another cluster",
		done:   "Two clusters have hosts 1 and 2, and no `Config.Cluster`. Host 2 of the first starts again with the address of host 1 of the second.",
		advice: []string{"correct the address"},
		make: func(s *scene) {
			a, b, other, more := s.host(1), s.host(2), s.host(1), s.host(2)
			other.name = "Host 1 of the other cluster"
			s.found(a, b)
			s.found(other, more)
			b.close()
			b.up(other, b)
			b.logs("cannot connect to a peer", "founded with different lists")
			other.logs("refused a connection", "founded with different lists")
		},
	},
	{
		name:   "Two addresses are swapped",
		done:   "A cluster of three was founded. Host 1 starts again, and its `Config.Members` gives host 2 the address of host 3, and the other way round.",
		advice: []string{"correct the address that host 1 has for host 2"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			a.close()
			swapped := map[uint64]string{1: a.addr, 2: c.addr, 3: b.addr}
			a.start(a.config(swapped)).serve(host.GroupConfig{})
			a.logs("cannot connect to a peer", "peer=2", "belongs to host 3")
			c.logs("refused a connection", "from=1", "belongs to host 3")
		},
	},
	{
		name:   "One address for two hosts",
		done:   "`Config.Members` gives hosts 2 and 3 the same address.",
		advice: []string{"each host needs its own"},
		make: func(s *scene) {
			a, b, c := s.trio()
			c.addr = b.addr
			s.fails("Host 1, Open", a.try(a.config(addresses(a, b, c))))
		},
	},
	{
		name:   "An address that others cannot dial",
		done:   "`Config.Members` names the address on which host 1 listens, `0.0.0.0`.",
		advice: []string{"name a host in Config.Members, and the address to listen on in Config.Listen"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			peers := addresses(a, b)
			peers[1] = "0.0.0.0:7000"
			s.fails("Host 1, Open", a.try(a.config(peers)))
		},
	},
	{
		name:   "The port is taken",
		done:   "Host 2 is started on the machine of host 1, on the same port.",
		advice: []string{"stop it, or change Config.Listen"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			a.up(a, b)
			c := b.config(addresses(a, b))
			c.Listen = a.addr
			s.fails("Host 2, Open", b.try(c))
		},
	},
	{
		name:   "A founding list without this host",
		done:   "`Config.Members` of host 3 names hosts 1 and 2 only.",
		advice: []string{"list the addresses of all hosts, this one's included"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.fails("Host 3, Open", c.try(c.config(addresses(a, b))))
		},
	},
	{
		name:   "A group names a host that the cluster does not have",
		done:   "`GroupConfig.Members` names host 9, and `Config.Members` does not.",
		advice: []string{"give its address there, or leave it out"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			a.start(a.config(addresses(a, b)))
			_, err := a.OpenGroup(s.Context(), host.GroupConfig{ID: theGroup, Members: []uint64{1, 2, 9}}, newJournal())
			s.fails("Host 1, OpenGroup", err)
		},
	},
	{
		name:   "A host that was never announced comes as a founder",
		done:   "A cluster of three was founded. Host 4 starts with a list of all four, without `Config.Joins`.",
		advice: []string{"a host that comes later needs Config.Joins or a join token"},
		make: func(s *scene) {
			a, b, c := s.trio()
			d := s.host(4)
			s.found(a, b, c)
			d.up(a, b, c, d)
			d.logs("cannot connect to a peer", "peer=1", "founded with different lists")
			a.logs("refused a connection", "from=4", "founded with different lists")
		},
	},
}
