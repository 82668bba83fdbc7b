package egress

import (
	"context"

	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
)

// secretQuota keeps the limits of one secret. It is a secretproxy.Quota.
type secretQuota struct {
	name    string
	ask     func(context.Context, question.Use) quota.Answer
	counted bool // requests are
	out, in *pool
}

// newSecretQuota returns nil without limits.
func newSecretQuota(name string, set quota.Set, ask func(context.Context, question.Use) quota.Answer) *secretQuota {
	if len(set) == 0 {
		return nil
	}
	_, total := set.Get(quota.Requests)
	_, paced := set.Get(quota.Rate)
	return &secretQuota{
		name: name, ask: ask, counted: total || paced,
		out: poolOf(ask, name, set, quota.Out), in: poolOf(ask, name, set, quota.In),
	}
}

// Request takes one request, and returns why it may not be sent, "" if it may.
func (q *secretQuota) Request(ctx context.Context) string {
	for _, p := range []*pool{q.out, q.in} {
		if p.isEmpty() {
			return q.reason(p.limit)
		}
	}
	if !q.counted {
		return ""
	}
	a := q.ask(ctx, question.Use{Of: q.name, Name: quota.Requests, Amount: 1})
	switch {
	case a.Reached != nil:
		return q.reason(*a.Reached)
	case a.Granted == 0:
		return "it is not known whether secret " + q.name + " may be used"
	}
	return ""
}

// Sent takes bytes of a request, and Received of an answer.
func (q *secretQuota) Sent(ctx context.Context, n int) (granted int, reason string) {
	return q.take(ctx, q.out, n)
}

// Received takes bytes of an answer.
func (q *secretQuota) Received(ctx context.Context, n int) (granted int, reason string) {
	return q.take(ctx, q.in, n)
}

func (q *secretQuota) take(ctx context.Context, p *pool, n int) (granted int, reason string) {
	taken, reached := p.take(ctx, int64(n))
	switch {
	case reached:
		reason = q.reason(p.limit)
	case taken < int64(n):
		reason = "it is not known whether secret " + q.name + " may be used"
	}
	return int(taken), reason
}

func (q *secretQuota) reason(l quota.Limit) string {
	return "the limit " + l.String() + " of secret " + q.name + " is reached; raise it with --secret-limit"
}
