package abuse_test

import (
	"runtime"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
)

// Mistakes with join tokens, and hosts that come without one.
var tokenMisuses = []misuse{
	{
		name:   "A join token that was used",
		done:   "Host 4 has joined with a token. Host 5 comes with the same one.",
		advice: []string{"make another one"},
		make: func(s *scene) {
			a, b, c := s.trio()
			d, e := s.host(4), s.host(5)
			s.found(a, b, c)
			token := a.token(host.JoinTokenOptions{})
			d.joins(token, a, nil)
			d.waitMembers([]uint64{1, 2, 3, 4}, nil)
			e.joins(token, a, nil)
			s.leaderLogs("comes with a join token and is not made a member", "it was used")
			e.logs("this host is not made a member of the group", "it was used")
			e.explains(diagnosis.CodeNotAdded, "it was used")
		},
	},
	{
		name:   "A join token that has expired",
		done:   "The token of host 4 was valid for a millisecond.",
		advice: []string{"make another one"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			b.joins(a.expiredToken(), a, nil)
			a.logs("comes with a join token and is not made a member", "has expired")
			b.logs("this host is not made a member of the group", "has expired")
			b.explains(diagnosis.CodeNotAdded, "has expired")
		},
	},
	{
		name:   "A join token for another host",
		done:   "The token was made for host 5, and host 4 comes with it.",
		advice: []string{"start host 5 with it, or make another one for host 4"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			b.joins(a.token(host.JoinTokenOptions{Member: 5}), a, nil)
			a.logs("comes with a join token and is not made a member", "is for host 5")
			b.logs("this host is not made a member of the group", "is for host 5")
		},
	},
	{
		name:   "A join token for any host under the id of a member",
		done:   "Host 2 has lost its disk, and comes back on an empty directory with a token that names no host.",
		advice: []string{"make a join token for host 2"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			b.wipe()
			b.joins(a.token(host.JoinTokenOptions{}), a, nil)
			s.leaderLogs("comes with a join token and is not made a member", "member 2 is there already")
			b.logs("cannot connect to a peer", "peer=1", "join token for host 2")
		},
	},
	{
		name:   "A join token with a typo",
		done:   "One character of the token was changed while it was copied.",
		advice: []string{"so a character was changed; copy it again"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			text := []byte(a.token(host.JoinTokenOptions{}))
			if text[40]++; text[40] == 'z'+1 || text[40] == 'Z'+1 || text[40] == '9'+1 {
				text[40] = 'a'
			}
			s.fails("Host 4, Open", b.tryToken(string(text), a, nil))
		},
	},
	{
		name:   "A part of a join token",
		done:   "The token was cut off when it was copied.",
		advice: []string{"copy the whole text that NewJoinToken has returned"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			s.fails("Host 4, Open", b.tryToken(a.token(host.JoinTokenOptions{})[:60], a, nil))
		},
	},
	{
		name:   "A join token of another cluster",
		done:   "The token was made in another cluster. Host 4 reaches host 1 of this one with it.",
		advice: []string{"correct the address"},
		make: func(s *scene) {
			a, other, b := s.host(1), s.host(1), s.host(4)
			s.found(a)
			s.found(other)
			b.joins(other.token(host.JoinTokenOptions{}), a, nil)
			a.logs("refused a connection", "from=4", "different clusters")
			b.logs("cannot connect to a peer", "peer=1", "different clusters")
		},
	},
	{
		name:   "A join token and another number of the cluster",
		done:   "Host 4 has a token and sets `Config.Cluster` to another number than that of the token.",
		advice: []string{"leave Config.Cluster out"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			c := b.tokenConfig(a.token(host.JoinTokenOptions{}), a, nil)
			c.Cluster = 99
			s.fails("Host 4, Open", b.try(c))
		},
	},
	{
		name:   "A join token over plain TCP to another machine",
		done:   "Host 4 has a token and no `Config.TLS`, and the member that it names is on another machine.",
		advice: []string{"set Config.TLS"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			c := b.tokenConfig(a.token(host.JoinTokenOptions{}), a, nil)
			c.Members[1] = "10.0.0.1:7000"
			s.fails("Host 4, Open", b.try(c))
		},
	},
	{
		name:   "A join token without a certificate",
		done:   "The members use TLS. Host 4 has a token, and `Config.TLS` is not set.",
		advice: []string{"give this host a certificate (millrace cert)"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			p := s.pki()
			s.secure(p.member(1, valid), a)
			s.fails("Host 4, Open", b.tryToken(a.token(host.JoinTokenOptions{}), a, nil))
		},
	},
	{
		name:   "A join token of a cluster without TLS",
		done:   "The members use plain TCP. Host 4 has a token, and `Config.TLS` is set.",
		advice: []string{"leave it out, or make the token on a member with TLS"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			s.fails("Host 4, Open", b.tryToken(a.token(host.JoinTokenOptions{}), a, s.pki().member(4, valid)))
		},
	},
	{
		name:   "A join token of a cluster with another CA",
		done:   "The members use TLS. The certificate and the CA of host 4 are those of another cluster.",
		advice: []string{"use the CA of the cluster, or make another token"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.secure(s.pki().member(1, valid), a)
			s.fails("Host 4, Open", b.tryToken(a.token(host.JoinTokenOptions{}), a, s.pki().member(4, valid)))
		},
	},
	{
		name:   "A join token that is valid for too long",
		done:   "A program asks for a token that is valid for a year.",
		advice: []string{"at most 720h0m0s"},
		make: func(s *scene) {
			a := s.host(1)
			s.found(a)
			_, err := a.group().NewJoinToken(s.Context(), host.JoinTokenOptions{Life: 365 * 24 * time.Hour})
			s.fails("Host 1, NewJoinToken", err)
		},
	},
	{
		name:   "A host that joins without a token or a plan",
		done:   "Host 4 starts with `Config.Joins` and `GroupConfig.Joins`, and no member adds it.",
		advice: []string{"make a join token on a member (NewJoinToken) and start this host with it"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			b.waits(a)
			b.explains(diagnosis.CodeNotAdded)
			b.rejectCommand("group 1")
		},
	},
	{
		name:   "A host that no member knows",
		done:   "Host 4 starts with `Config.Joins` and the address of host 1, without a token. Host 1 does not know host 4.",
		advice: []string{"start it with a join token, or say on host 1 where it is (SetPeer)"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			s.found(a)
			c := b.config(addresses(a, b))
			c.Joins, c.Cluster = true, a.Cluster()
			b.start(c).serve(host.GroupConfig{Joins: true})
			a.logs("refused a connection", "from=4", "not in the address book")
			b.logs("cannot connect to a peer", "peer=1", "not in the address book")
		},
	},
	{
		name:   "A host that joins without the number of the cluster",
		done:   "Host 4 starts with `Config.Joins`, without a token and without `Config.Cluster`.",
		advice: []string{"set it to the number of the cluster, which Host.Cluster tells on its hosts"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(4)
			c := b.config(addresses(a, b))
			c.Joins = true
			s.fails("Host 4, Open", b.try(c))
		},
	},
}

// expiredToken returns a token when its millisecond has passed in log time, which the leader, this host,
// counts with its clock.
func (a *actor) expiredToken() string {
	a.T.Helper()
	const life = time.Millisecond
	token := a.token(host.JoinTokenOptions{Life: life})
	for made := a.group().Now(); a.group().Now()-made < life; {
		runtime.Gosched()
	}
	return token
}

// tokenConfig is the configuration of a host that joins with a token and the address of one member.
func (a *actor) tokenConfig(token string, member *actor, files *host.TLS) host.Config {
	c := a.config(addresses(member, a))
	c.JoinTokens, c.TLS = []string{token}, files
	return c
}

func (a *actor) tryToken(token string, member *actor, files *host.TLS) error {
	return a.try(a.tokenConfig(token, member, files))
}

// joins opens the host with a token, and theGroup.
func (a *actor) joins(token string, member *actor, files *host.TLS) {
	a.T.Helper()
	a.start(a.tokenConfig(token, member, files)).serve(host.GroupConfig{})
}

// waits opens the host, and theGroup, which waits until a member adds it. The other host is told where it is.
func (a *actor) waits(member *actor) {
	a.T.Helper()
	c := a.config(addresses(member, a))
	c.Joins, c.Cluster = true, member.Cluster()
	a.start(c).serve(host.GroupConfig{Joins: true})
	if err := member.SetPeer(a.id, a.addr); err != nil {
		a.Fatal(err)
	}
}

// leader returns the host that leads theGroup.
func (s *scene) leader(hosts ...*actor) *actor {
	s.T.Helper()
	l, err := hosts[0].group().WaitLeader(deadline(s.T))
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range hosts {
		if a.id == l.ID {
			return a
		}
	}
	s.Fatalf("host %d leads", l.ID)
	return nil
}
