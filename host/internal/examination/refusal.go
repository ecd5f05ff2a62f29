package examination

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/identity"
)

// What to do about a host that is refused because of its directory, its cluster or its key.
const (
	FixDirectory = "give the host that is refused its old directory back, or stop it if another host runs under its id; if the directory is lost, " + identity.ReplaceLost + "; never start it on a copy"
	FixCluster   = "correct the address, the list or the number that the sentence names; the directories of a cluster that has worked stay as they are"
	FixKey       = "if the certificate is the one that you have made, call Host.AcceptKey on each host that refuses it; if not, put the old one back, and find out who has made this one"
)

// findIdentity finds hosts that refuse this one, and members that this one refuses.
func (e *examination) findIdentity() {
	for _, id := range e.Members {
		p := e.peer(id)
		if r := p.RefusedBy; r != nil {
			e.found(diagnosis.CodeIdentityRefused, id, r.Since, FixDirectory, "host %d refuses this host: %s", id, r.Why)
		}
		if r := e.refused(p); r != nil {
			e.found(diagnosis.CodeIdentityRefused, id, r.Since, r.Fix, "this host refuses host %d, which speaks from %s: %s", id, r.Remote, r.Why)
		}
	}
	for _, id := range e.Founding.Refused {
		if silent, ever := e.silence(id, 0); !ever || silent > e.Bounds.Refused() {
			continue // it came with that directory once; now it does not come
		}
		e.found(diagnosis.CodeIdentityRefused, id, e.DirectoriesSince, FixDirectory,
			"the host of member %d comes with directory %v, and the group is bound to another one", id, e.peer(id).Directory)
	}
}

// refused returns why this host refuses another one, if it has lately.
func (f *Facts) refused(p *Peer) *Refusal {
	if r := p.Refused; r.Lasts(f.Now, f.Bounds) {
		return r
	}
	return nil
}

// findCertificates finds members with which this host does not speak because of a certificate.
func (e *examination) findCertificates() {
	for _, id := range e.Members {
		c := e.peer(id).Certificate
		if silent, _ := e.silence(id, 0); c == nil || e.Now-c.Latest > e.Bounds.Refused() || silent <= e.Bounds.Unheard() {
			continue
		}
		if c.ByPeer {
			e.found(diagnosis.CodeCertificateRefused, id, c.Since,
				fmt.Sprintf("renew the certificate of this host, or make host %d trust its CA; no restart is needed", id),
				"host %d refuses the certificate of this host: %v", id, c.Err)
			continue
		}
		e.found(diagnosis.CodeCertificateRefused, id, c.Since,
			fmt.Sprintf("renew the certificate of host %d, or make this host trust its CA; no restart is needed", id),
			"this host refuses a certificate of host %d, which speaks from %s: %v", id, c.Remote, c.Err)
	}
}

// findSettings finds members with other settings than this one.
func (e *examination) findSettings() {
	for _, id := range e.Members {
		p := e.peer(id)
		var differ, names []string
		for _, s := range p.Settings {
			if s.Theirs != s.Ours {
				names = append(names, s.Name)
				differ = append(differ, fmt.Sprintf("%s is %v on host %d and %v on host %d", s.Name, s.Theirs, id, s.Ours, e.Host))
			}
		}
		if len(differ) > 0 {
			e.found(diagnosis.CodeSettingsDiffer, id, p.SettingsAt,
				fmt.Sprintf("give all members the same %s, and restart those that have another one", strings.Join(names, " and ")),
				"%s: a member with a short timeout does not wait for a leader with a long one, so leaders may change again and again", strings.Join(differ, ", "))
		}
	}
}

// findSingleEntries finds members that keep this leader from putting several commands into an entry. One of
// an earlier version refuses entries with several commands that are in the log already.
func (e *examination) findSingleEntries() {
	if !e.Config.Batches || e.Status.Role != event.RoleLeader {
		return
	}
	for _, id := range e.Members {
		p := e.peer(id)
		if silent, ever := e.silence(id, 0); id == e.Host || p.Batches == BatchesRead || !ever || silent > e.Bounds.Unheard() || e.Now-p.HeardSince <= e.Bounds.Wait() {
			continue
		}
		if p.Batches == BatchesRefused {
			e.found(diagnosis.CodeSingleEntries, id, p.SettingsAt, fmt.Sprintf("take Config.SingleEntries from host %d, and restart it", id),
				"host %d has Config.SingleEntries, so host %d, which leads, writes an entry for each command", id, e.Host)
			continue
		}
		e.found(diagnosis.CodeSingleEntries, id, p.HeardSince, fmt.Sprintf("give host %d the program that the others have", id),
			"host %d has not said that it reads entries with several commands, so host %d, which leads, writes an entry for each; a program of an earlier version refuses entries with several that are in the log, says so in its own log, and stays behind", id, e.Host)
	}
}
