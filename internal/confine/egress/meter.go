package egress

import (
	"context"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// maxLease bounds the bytes that are asked for at once: those that a process has when it is killed
// count as used.
const maxLease = 1 << 20

// A pool is what the process was granted of a total and has not used. A nil one has no limit.
type pool struct {
	ask   func(context.Context, question.Use) quota.Answer
	of    string
	limit quota.Limit

	mu      sync.Mutex // held during a question
	left    int64
	reached bool
}

// poolOf returns the pool of a limit, nil without a limit.
func poolOf(ask func(context.Context, question.Use) quota.Answer, of string, set quota.Set, name string) *pool {
	limit, limited := set.Get(name)
	if !limited {
		return nil
	}
	return &pool{ask: ask, of: of, limit: limit}
}

// take takes n bytes, or what is left of them. reached says that it is the limit that granted
// less.
func (p *pool) take(ctx context.Context, n int64) (granted int64, reached bool) {
	if p == nil {
		return n, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if missing := n - p.left; missing > 0 && !p.reached {
		more := min(p.limit.Max/64, maxLease)
		a := p.ask(ctx, question.Use{Of: p.of, Name: p.limit.Name, Amount: missing, More: more})
		p.left += a.Granted
		p.reached = a.Reached != nil
	}
	granted = min(n, p.left)
	p.left -= granted
	return granted, p.reached && granted < n
}

// isEmpty reports whether the limit was reached.
func (p *pool) isEmpty() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached && p.left == 0
}

// meter keeps the limits of the sandbox's network. Its zero value has none.
type meter struct {
	ask     func(context.Context, question.Use) quota.Answer
	reached func(reason string) // is told of a total that is used up
	out, in *pool
	paced   *quota.Limit // of new connections
	rate    *quota.Limit // of bytes
	slice   int          // of bytes that pass between two waits

	mu     sync.Mutex
	bucket *quota.Bucket // of rate
}

// set takes the limits.
func (m *meter) set(limits quota.Set) {
	m.out, m.in = poolOf(m.ask, "", limits, quota.Out), poolOf(m.ask, "", limits, quota.In)
	if paced, is := limits.Get(quota.New); is {
		m.paced = &paced
	}
	if rate, is := limits.Get(quota.Rate); is {
		const perSecond, least = 16, 512
		m.rate, m.bucket = &rate, quota.NewBucket(quota.Limit{Max: int64(perSecondOf(rate)) + 1, Per: time.Second}, time.Now())
		m.slice = max(int(perSecondOf(rate)/perSecond), least)
	}
}

func perSecondOf(l quota.Limit) float64 { return float64(l.Max) / l.Per.Seconds() }

// counts reports whether what passes is to be counted.
func (m *meter) counts() bool { return m.out != nil || m.in != nil || m.rate != nil }

// turn waits until a new connection may be made. Errors: a refusal.
func (m *meter) turn(ctx context.Context) error {
	for _, p := range []*pool{m.out, m.in} {
		if p.isEmpty() {
			return refusal{reasonReached(p.limit)}
		}
	}
	if m.paced == nil {
		return nil
	}
	a := m.ask(ctx, question.Use{Name: quota.New, Amount: 1})
	if a.Granted == 0 {
		return refusal{reasonReached(*m.paced)}
	}
	return sleep(ctx, a.Wait)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass takes n bytes in one direction, after a wait if there is a rate, or what is left of them.
// Errors: a refusal, where a limit has granted less.
func (m *meter) pass(ctx context.Context, p *pool, n int) (int, error) {
	granted, reached := p.take(ctx, int64(n))
	if m.rate != nil && granted > 0 {
		if err := sleep(ctx, m.wait(granted)); err != nil {
			return 0, err
		}
	}
	if reached {
		err := refusal{reasonReached(p.limit)}
		m.reached(err.reason)
		return int(granted), err
	}
	if granted < int64(n) { // the supervisor is gone
		return int(granted), context.Canceled
	}
	return n, nil
}

// wait takes bytes of the rate, and returns how long they wait.
func (m *meter) wait(n int64) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	const anyTime = 1 << 62
	wait, _ := m.bucket.Take(float64(n), time.Now(), anyTime)
	return wait
}

// reasonReached says which limit of the network is reached, and how to raise it.
func reasonReached(l quota.Limit) string {
	return "the limit " + l.String() + " of the network is reached; raise it with --net-limit, on a server with net_limits, up to network.limits"
}

// useQuota answers a process that wants to use something that is limited. Errors: of the wire, and
// for what cannot be asked for.
func (e *Egress) useQuota(c *child, id uint64, u *question.Use) error {
	if u == nil || u.Amount <= 0 || u.More < 0 || u.Amount > maxSum || u.More > maxLease {
		return errdefs.New(errdefs.Internal, "it asked for a use that cannot be")
	}
	now := time.Now()
	var a quota.Answer
	if u.Name == quota.Requests {
		a = e.ledger.Request(u.Of, now)
	} else {
		a = e.ledger.Take(u.Of, u.Name, u.Amount, u.More, now)
	}
	if a.First && e.options.Limited != nil {
		e.options.Limited(u.Of, *a.Reached)
	}
	e.orders.Lock()
	defer e.orders.Unlock()
	return e.tell(c, func() error { return c.wire.send(order{Used: id, Quota: &a}) })
}
