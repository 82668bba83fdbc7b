package record_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func update(t *testing.T, s *record.Sandbox, change func(*record.Record)) {
	t.Helper()
	err := s.Update(func(r *record.Record) error {
		change(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantEarlier(t *testing.T, h *record.Home, want contributor.Earlier) {
	t.Helper()
	if diff := cmp.Diff(want, open(t, h).Earlier); diff != "" {
		t.Errorf("earlier (-want +got):\n%s", diff)
	}
}

// Whoever narrows a network or removes a mount leaves a trace of what there was.
func TestTheRecordHasWhatTheSandboxHadEarlier(t *testing.T) {
	h, s := newSandbox(t)
	secret := hostlist.Secret{Text: "KEY@api.example.com:443", Placeholder: "p", Limits: "requests=1"}
	mount := record.Mount{Source: "/old", Target: "/m", Name: "m", Mode: "ro"}
	update(t, s, func(r *record.Record) {
		r.Net, r.AllowNet, r.Secrets, r.Mounts = record.NetNamed, []string{"a.example.com:443", "b.example.com:443"}, []hostlist.Secret{secret}, []record.Mount{mount}
		r.Publish = []published.Port{{Host: 8080, Inside: 3000}}
	})
	wantEarlier(t, h, contributor.Earlier{Nets: []string{"none"}})

	update(t, s, func(r *record.Record) {
		r.AllowNet, r.Secrets, r.Publish = []string{"b.example.com:443"}, nil, nil
		r.Mounts[0].Source = "/new"
	})
	want := contributor.Earlier{
		Nets: []string{"none"}, AllowNet: []string{"a.example.com:443"}, Secrets: []hostlist.Secret{{Text: secret.Text}},
		Publish: []uint16{3000}, Mounts: []record.Mount{mount},
	}
	wantEarlier(t, h, want)

	// What it has again is not earlier.
	update(t, s, func(r *record.Record) {
		r.Net, r.AllowNet = record.NetNone, nil
		r.Mounts[0].Source = "/old"
	})
	want.Nets, want.AllowNet, want.Mounts = []string{"named"}, []string{"a.example.com:443", "b.example.com:443"}, []record.Mount{{Source: "/new", Target: "/m", Name: "m", Mode: "ro"}}
	wantEarlier(t, h, want)
}

// A host that was granted for a time, or was revoked, was reachable nevertheless.
func TestGrantedHostsStayInTheRecord(t *testing.T) {
	h, s := newSandbox(t)
	grant := func(c hostlist.Change) {
		t.Helper()
		if err := s.ChangeHosts(c); err != nil {
			t.Fatal(err)
		}
	}
	grant(hostlist.Change{Grant: []string{"a.example.com:443"}})
	grant(hostlist.Change{Grant: []string{"b.example.com:443"}, For: time.Nanosecond})
	grant(hostlist.Change{Grant: []string{"c.example.com:443"}, Revoke: []string{"a.example.com:443"}})
	wantEarlier(t, h, contributor.Earlier{Nets: []string{"none"}, AllowNet: []string{"a.example.com:443", "b.example.com:443"}})
}

// Clients may grant and revoke without an end, and the record must not grow so.
func TestWhatASandboxHadIsBounded(t *testing.T) {
	_, s := newSandbox(t)
	hosts := func(from int) (all []string) {
		for i := range 200 {
			all = append(all, fmt.Sprintf("h%d.example.com:443", from+i))
		}
		return all
	}
	change := func(all []string) error {
		return s.Update(func(r *record.Record) error {
			r.Net, r.AllowNet = record.NetNamed, all
			return nil
		})
	}
	for i := range 5 {
		if err := change(hosts(200 * i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := change(hosts(1000)); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("one host too much: %v, want Exhausted", err)
	}
	grant := hostlist.Change{Grant: []string{"h1000.example.com:443"}}
	if err := change(nil); err != nil {
		t.Fatal(err)
	}
	if err := s.ChangeHosts(grant); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("a grant of a host: %v, want Exhausted", err)
	}
	err := audit.Read(s.AuditPath(), func(r audit.Record) error {
		if e, is := r.Event.(audit.HostsChanged); is {
			t.Errorf("the log has hosts that were refused: %+v", e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := change(nil); err != nil {
		t.Errorf("fewer hosts: %v", err)
	}
	if err := change(hosts(0)); err != nil {
		t.Errorf("hosts that it has had: %v", err)
	}
}

// Changes may come of one sandbox twice, once by another that got them earlier. The description
// that comes last must not replace what was known.
func TestTheDescriptionsOfAContributorAddUp(t *testing.T) {
	h, _ := newSandbox(t)
	into, by, from := open(t, h), open(t, h), open(t, h)
	by.ID, by.Name, from.ID, from.Name = "sb_1111111111111111", "by", "sb_2222222222222222", "from"
	merge := func(into, from *record.Record) {
		t.Helper()
		if err := into.AddContributor(from); err != nil {
			t.Fatal(err)
		}
	}
	merge(&by, &from)
	from.SetRules([]policy.Rule{{Pattern: "/late", Permission: policy.Read}}, "")
	from.Net, from.AllowNet = record.NetNamed, []string{"late.example.com:443"}
	from.Mounts = []record.Mount{{Source: "/late", Target: "/m", Name: "m", Mode: "ro"}}
	merge(&into, &from)
	merge(&into, &by)
	if len(into.Contributors) != 2 || into.Contributors[0].ID != string(from.ID) {
		t.Fatalf("got %+v", into.Contributors)
	}
	got := into.Contributors[0]
	want := contributor.Earlier{Nets: []string{record.NetNamed}, AllowNet: from.AllowNet, Mounts: from.Mounts}
	if diff := cmp.Diff(want, got.Earlier); diff != "" {
		t.Errorf("earlier (-want +got):\n%s", diff)
	}
	if len(got.EarlierRules) != 1 || got.EarlierRules[0][0].Pattern != "/late" {
		t.Errorf("got the earlier policies %+v", got.EarlierRules)
	}
}
