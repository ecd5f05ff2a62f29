package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace"
)

// members answers GET /members: who the members are, and how far a plan is.
func (a *api) members(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.node.Members())
}

// changeMembers answers POST /members with the changes of its form, each of which may be given several times:
// add=4=127.0.0.1:7004, learner=4=127.0.0.1:7004, replace=3, promote=4, demote=2, remove=1. With plan=true it
// only says what they would do; otherwise it answers when all of them are in force.
func (a *api) changeMembers(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "the form cannot be read: %v", err)
		return
	}
	changes, err := a.parseChanges(r.Form)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.timeout)
	defer cancel()
	plan, err := a.node.Plan(ctx, changes...)
	if err != nil {
		refuse(w, http.StatusConflict, "%v", err)
		return
	}
	if r.Form.Get("plan") == "true" {
		fmt.Fprintln(w, plan)
		return
	}
	switch err := a.node.Execute(ctx, plan); {
	case err == nil:
		fmt.Fprintln(w, plan)
	case errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusAccepted, "%v; GET /members says how far it is", err)
	default:
		refuse(w, http.StatusConflict, "%v", err)
	}
}

// joinToken answers POST /members/token with a join token. The form may say for which host it is (member=3;
// if that is a member, its directory is replaced), how long it is valid (life=10m), and learner=true.
func (a *api) joinToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	o, err := parseToken(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.timeout)
	defer cancel()
	token, err := a.node.NewJoinToken(ctx, o)
	if err != nil {
		refuse(w, http.StatusConflict, "%v", err)
		return
	}
	fmt.Fprintln(w, token)
}

// parseToken reads for whom a token is.
func parseToken(r *http.Request) (o millrace.JoinTokenOptions, err error) {
	if err := r.ParseForm(); err != nil {
		return o, fmt.Errorf("the form cannot be read: %w", err)
	}
	if text := r.Form.Get("member"); text != "" {
		if o.Member, err = strconv.ParseUint(text, 10, 64); err != nil {
			return o, fmt.Errorf("member=%.40q, want the number of a member whose directory is lost, such as member=3", text)
		}
	}
	if text := r.Form.Get("life"); text != "" {
		if o.Life, err = time.ParseDuration(text); err != nil {
			return o, fmt.Errorf("life=%.40q, want a time such as life=1h", text)
		}
	}
	switch text := r.Form.Get("learner"); text {
	case "", "false":
	case "true":
		o.Learner = true
	default:
		return o, fmt.Errorf("learner=%.40q, want learner=true for a member that does not vote", text)
	}
	return o, nil
}

// parseChanges reads the changes of a form.
func (a *api) parseChanges(form url.Values) (changes []millrace.MemberChange, err error) {
	for _, of := range []struct {
		word    string
		change  func(id uint64, addr string) millrace.MemberChange
		hasAddr bool
	}{
		{"add", millrace.AddMember, true},
		{"learner", millrace.AddLearner, true},
		{"replace", millrace.ReplaceMember, false},
		{"promote", without(millrace.PromoteMember), false},
		{"demote", without(millrace.DemoteMember), false},
		{"remove", without(millrace.RemoveMember), false},
	} {
		for _, text := range form[of.word] {
			number, addr, found := strings.Cut(text, "=")
			id, err := strconv.ParseUint(number, 10, 64)
			if err != nil || found != of.hasAddr {
				return nil, fmt.Errorf("%s=%.80q: want %s=4%s", of.word, text, of.word, map[bool]string{true: "=127.0.0.1:7004"}[of.hasAddr])
			}
			changes = append(changes, of.change(id, addr))
		}
	}
	if len(changes) == 0 {
		return nil, errors.New("the form has no change: want add=4=127.0.0.1:7004, learner=4=127.0.0.1:7004, replace=3, promote=4, demote=2 or remove=1")
	}
	return changes, nil
}

// without makes a change that needs no address like those that take one.
func without(change func(id uint64) millrace.MemberChange) func(uint64, string) millrace.MemberChange {
	return func(id uint64, _ string) millrace.MemberChange { return change(id) }
}
