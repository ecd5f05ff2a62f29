package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// The part of the protocol that is about members:
//
//	{"do":"members","group":1}                         {"members":{…}}
//	{"do":"plan","group":1,"changes":[{"op":"add",     {"plan":{"id":"5d0f…","text":"…",…}}
//	  "id":4,"addr":"10.0.0.4:7000"}]}
//	{"do":"execute","group":1,"plan":"5d0f…",          {"progress":{"plan":"5d0f…","done":false,…}}
//	  "seen":"…"}
//	{"do":"cancel","group":1,"plan":"5d0f…"}           {"progress":{…}}
//	{"do":"address","id":4,"addr":"10.0.0.4:7000"}     {"members":{…}}
//	{"do":"accept-key","id":4}                         {"members":{…}}
//	{"do":"skip","group":1,"index":5,"yes":true}       {"skip":{"group":1,"index":5,"done":true,…}}
//	{"do":"upgrade","group":1,"version":2}             {"upgrade":{"group":1,"version":2,"since":812,…}}
//	{"do":"token","group":1,"id":4,"life":"1h",        {"token":{"text":"millrace-join-1.…"}}
//	  "learner":true}
//
// execute begins a plan that the host has made, or continues to watch one. It answers when there is something
// that the program has not seen, or after a few seconds; then the program asks again. The host continues with
// the plan whether or not a program asks.

// The operations of a Change.
const (
	OpAdd     = "add"
	OpLearner = "learner"
	OpReplace = "replace"
	OpPromote = "promote"
	OpDemote  = "demote"
	OpRemove  = "remove"
)

// Change is what a plan does to one member. Addr says where a host is that is added; "" if the host that is
// asked knows.
type Change struct {
	Op   string `json:"op"`
	ID   uint64 `json:"id"`
	Addr string `json:"addr,omitempty"`
}

// Members are the members of a group. The names stay: millrace members list --json prints them.
type Members struct {
	Host    uint64 `json:"host"` // that was asked
	Cluster uint64 `json:"cluster"`
	Group   uint64 `json:"group"`
	Leader  uint64 `json:"leader"` // 0: not known
	Founded bool   `json:"founded"`
	Version uint64 `json:"version"`
	// MachineVersion is the version of the state machine that the group is at, as the host has applied it.
	MachineVersion uint32   `json:"machine_version"`
	Members        []Member `json:"members"`
	More           int      `json:"more,omitempty"` // members that the line had no room for
	Removed        []uint64 `json:"removed,omitempty"`
	// View is the member that reports which members are heard: the leader, after it was asked. It is 0 if
	// none has answered. Then Heard is true only of members that the host hears itself, and Tolerates means
	// nothing.
	View      uint64 `json:"view"`
	Tolerates int    `json:"tolerates"` // how many more voters may fail
	PlanID    string `json:"plan_id,omitempty"`
	Plan      string `json:"plan,omitempty"`  // under way
	Waits     string `json:"waits,omitempty"` // for what
	// Tokens are the join tokens that were not used and have not expired.
	Tokens []OpenToken `json:"tokens,omitempty"`
}

// OpenToken is a join token, without its secret.
type OpenToken struct {
	Name    string `json:"name"`
	ID      uint64 `json:"id,omitempty"` // of the only host that may use it
	Learner bool   `json:"learner,omitempty"`
	Seconds int64  `json:"seconds"` // for which it is valid, in log time
}

// Member is one of them.
type Member struct {
	ID          uint64 `json:"id"`
	Role        string `json:"role"`
	Heard       bool   `json:"heard"`
	Addr        string `json:"addr"`
	Incarnation string `json:"incarnation"`
	// Versions are the versions of the state machine that its program can do: the lowest and the highest;
	// nothing if it has not said.
	Versions []uint32 `json:"versions,omitempty"`
}

// Plan is a plan that a host has made. Text is the page for an operator.
type Plan struct {
	ID        string   `json:"id"`
	Group     uint64   `json:"group"`
	Text      string   `json:"text"`
	View      uint64   `json:"view"` // as in Members
	Tolerates int      `json:"tolerates"`
	Absent    []uint64 `json:"absent,omitempty"`
	Stages    []Stage  `json:"stages"`
}

// Stage is one stage of a plan.
type Stage struct {
	What   string `json:"what"`
	During int    `json:"tolerates_during"`
	After  int    `json:"tolerates_after"`
}

// Progress is how far a plan is.
type Progress struct {
	Plan string `json:"plan"`
	Done bool   `json:"done"`
	// Refused says why a plan was not begun, or how it has ended without being carried out.
	Refused string `json:"refused,omitempty"`
	// Left says that the plan has removed this host, which therefore does not see its end.
	Left bool `json:"left,omitempty"`
	// State is what is under way, and for what it waits: "" before the plan is begun.
	State string `json:"state,omitempty"`
}

// Token is a join token: a secret.
type Token struct {
	Text string `json:"text"`
}

// MemberHost is what a server asks about members. Its methods are called by several goroutines at once.
type MemberHost interface {
	// Members says who the members of a group are.
	Members(group uint64) (Members, error)
	// Plan makes a plan, and keeps it for a while under its id.
	Plan(ctx context.Context, group uint64, changes []Change) (Plan, error)
	// Execute begins a plan of that id, or goes on watching it. It returns when the state is another one than
	// seen, or after a few seconds.
	Execute(ctx context.Context, group uint64, id, seen string) (Progress, error)
	// Cancel ends a plan.
	Cancel(ctx context.Context, group uint64, id string) (Progress, error)
	// SetPeer says where a host is.
	SetPeer(id uint64, addr string) error
	// JoinToken makes a join token of a group: for one host or, if member is 0, for any new one.
	JoinToken(ctx context.Context, group, member uint64, life time.Duration, learner bool) (Token, error)
	// AcceptKey makes the host accept the key for which it has refused another one last.
	AcceptKey(id uint64) error
	// Skip makes all members of a group skip a command or, if yes is false, says what that would do.
	Skip(ctx context.Context, group uint64, at raftpb.Position, yes bool) (Skip, error)
	// Upgrade makes a group go on at a version of its state machine.
	Upgrade(ctx context.Context, group uint64, to uint32) (Upgrade, error)
}

// Upgrade says at which version the state machine of a group is.
type Upgrade struct {
	Group   uint64 `json:"group"`
	Version uint32 `json:"version"`
	Since   uint64 `json:"since"` // the entry that began it; 0: the founding did
	Text    string `json:"text"`  // a sentence for an operator
}

// Skip says what happened to a request to skip a command.
type Skip struct {
	Group uint64 `json:"group"`
	Index uint64 `json:"index"`
	Pos   uint32 `json:"pos,omitempty"` // among the commands with this index, from 0
	Done  bool   `json:"done"`
	Text  string `json:"text"` // a sentence for an operator
}

// maxChanges bounds the changes of one plan.
const maxChanges = 64

// rejectMemberRequest says what is wrong with a request about members, or returns nil.
func (r *request) rejectMemberRequest() error {
	switch {
	case r.Do == doPlan && (len(r.Changes) == 0 || len(r.Changes) > maxChanges):
		return fmt.Errorf("%s has %d changes, want 1 to %d", doPlan, len(r.Changes), maxChanges)
	case r.Do != doPlan && len(r.Changes) > 0:
		return fmt.Errorf("changes are for %s", doPlan)
	case (r.Do == doExecute || r.Do == doCancel) != (r.Plan != ""):
		return fmt.Errorf("a plan is for %s and %s, which need one", doExecute, doCancel)
	case r.Do != doExecute && r.Seen != "":
		return fmt.Errorf("seen is for %s", doExecute)
	case r.Do == doAddress && (r.ID == 0 || r.Addr == ""):
		return fmt.Errorf("%s needs an id and an addr", doAddress)
	case r.Do == doKey && r.ID == 0:
		return fmt.Errorf("%s needs an id", doKey)
	case r.Do != doAddress && r.Addr != "":
		return fmt.Errorf("addr is for %s", doAddress)
	case r.Do != doAddress && r.Do != doKey && r.Do != doToken && r.ID != 0:
		return fmt.Errorf("id is for %s, %s and %s", doAddress, doKey, doToken)
	case r.Do != doSkip && r.Pos != 0:
		return fmt.Errorf("a pos is for %s", doSkip)
	case (r.Do == doSkip) != (r.Index != 0):
		return fmt.Errorf("an index is for %s, which needs one", doSkip)
	case (r.Do == doUpgrade) != (r.Version != 0):
		return fmt.Errorf("a version is for %s, which needs one, from 1", doUpgrade)
	case r.Do != doSkip && r.Yes:
		return fmt.Errorf("yes is for %s", doSkip)
	case r.Do != doToken && (r.Life != "" || r.Learner):
		return fmt.Errorf("life and learner are for %s", doToken)
	}
	_, err := r.life()
	return err
}

// life returns how long a token is valid; 0 is the host's default.
func (r *request) life() (time.Duration, error) {
	if r.Life == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(r.Life)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("life is %.40q, want a time as 1h30m", r.Life)
	}
	return d, nil
}

// answerMembers answers a request about members.
func (s *Server) answerMembers(ctx context.Context, r request) (a answer, err error) {
	switch r.Do {
	case doMembers:
		var m Members
		if m, err = s.host.Members(r.Group); err == nil {
			a.Members = fitMembers(m)
		}
	case doPlan:
		var p Plan
		if p, err = s.host.Plan(ctx, r.Group, r.Changes); err == nil {
			a.Plan = &p
		}
	case doExecute:
		var p Progress
		if p, err = s.host.Execute(ctx, r.Group, r.Plan, r.Seen); err == nil {
			a.Progress = &p
		}
	case doCancel:
		var p Progress
		if p, err = s.host.Cancel(ctx, r.Group, r.Plan); err == nil {
			a.Progress = &p
		}
	case doToken:
		var t Token
		life, _ := r.life() // it was checked
		if t, err = s.host.JoinToken(ctx, r.Group, r.ID, life, r.Learner); err == nil {
			a.Token = &t
		}
	case doKey:
		if err = s.host.AcceptKey(r.ID); err == nil {
			a.Members = &Members{Members: []Member{}}
		}
	case doSkip:
		var skip Skip
		if skip, err = s.host.Skip(ctx, r.Group, raftpb.Position{Index: r.Index, Pos: r.Pos}, r.Yes); err == nil {
			a.Skip = &skip
		}
	case doUpgrade:
		var u Upgrade
		if u, err = s.host.Upgrade(ctx, r.Group, r.Version); err == nil {
			a.Upgrade = &u
		}
	case doAddress:
		if err = s.host.SetPeer(r.ID, r.Addr); err == nil {
			a.Members = &Members{Members: []Member{}}
		}
	}
	if line, bad := json.Marshal(a); err == nil && (bad != nil || len(line) >= maxLineBytes) {
		return answer{}, fmt.Errorf("the answer has %d bytes, and a line at most %d; ask in the program (Members, Plan): %w", len(line), maxLineBytes, errors.Join(bad))
	}
	return a, err
}

// fitMembers leaves out as many members as a line has no room for.
func fitMembers(m Members) *Members {
	for n := len(m.Members); ; n /= 2 {
		cut := m
		cut.Members, cut.More = m.Members[:n], len(m.Members)-n
		if n == 0 && cut.Removed != nil {
			cut.Removed = nil
		}
		if line, err := json.Marshal(answer{Members: &cut}); n == 0 || err == nil && len(line) < maxLineBytes {
			return &cut
		}
	}
}

// Members asks for the members of a group.
func (c *Client) Members(ctx context.Context, group uint64) (Members, error) {
	a, err := c.ask(ctx, request{Do: doMembers, Group: group})
	return field(c, a.Members, err)
}

// Plan makes the host plan changes. It keeps the plan for Execute.
func (c *Client) Plan(ctx context.Context, group uint64, changes []Change) (Plan, error) {
	a, err := c.ask(ctx, request{Do: doPlan, Group: group, Changes: changes})
	return field(c, a.Plan, err)
}

// Execute begins a plan, or goes on watching it: call it until Done is set, with the state that it has
// returned last. Closing the client ends the watching only.
func (c *Client) Execute(ctx context.Context, group uint64, id, seen string) (Progress, error) {
	a, err := c.ask(ctx, request{Do: doExecute, Group: group, Plan: id, Seen: seen})
	return field(c, a.Progress, err)
}

// Cancel ends a plan. What is in force stays.
func (c *Client) Cancel(ctx context.Context, group uint64, id string) (Progress, error) {
	a, err := c.ask(ctx, request{Do: doCancel, Group: group, Plan: id})
	return field(c, a.Progress, err)
}

// SetPeer says where a host is.
func (c *Client) SetPeer(ctx context.Context, id uint64, addr string) error {
	a, err := c.ask(ctx, request{Do: doAddress, ID: id, Addr: addr})
	_, err = field(c, a.Members, err)
	return err
}

// JoinToken makes a join token: for one host or, if member is 0, for any new one. A life of 0 is the host's
// default, an hour.
func (c *Client) JoinToken(ctx context.Context, group, member uint64, life time.Duration, learner bool) (Token, error) {
	r := request{Do: doToken, Group: group, ID: member, Learner: learner}
	if life != 0 {
		r.Life = life.String()
	}
	a, err := c.ask(ctx, r)
	return field(c, a.Token, err)
}

// AcceptKey makes the host accept the key for which it has refused another one last.
func (c *Client) AcceptKey(ctx context.Context, id uint64) error {
	a, err := c.ask(ctx, request{Do: doKey, ID: id})
	_, err = field(c, a.Members, err)
	return err
}

// Skip makes all members of a group skip a command or, if yes is false, says what that would do.
func (c *Client) Skip(ctx context.Context, group uint64, at raftpb.Position, yes bool) (Skip, error) {
	a, err := c.ask(ctx, request{Do: doSkip, Group: group, Index: at.Index, Pos: at.Pos, Yes: yes})
	return field(c, a.Skip, err)
}

// Upgrade makes a group go on at a version of its state machine.
func (c *Client) Upgrade(ctx context.Context, group uint64, to uint32) (Upgrade, error) {
	a, err := c.ask(ctx, request{Do: doUpgrade, Group: group, Version: to})
	return field(c, a.Upgrade, err)
}

// field returns the part of an answer that was asked for.
func field[T any](c *Client, of *T, err error) (T, error) {
	if err == nil && of == nil {
		err = c.unexpected()
	}
	if err != nil {
		var none T
		return none, err
	}
	return *of, nil
}
