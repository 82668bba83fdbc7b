package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count requests by HTTP method and status. The values of labels are from a short list,
// never a path, an id or a name of a client.
type metrics struct {
	page     http.Handler
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// Connections are the numbers of connections of all listeners.
type Connections struct {
	Anonymous, Admitted int    // open ones without and with credentials
	Evicted             uint64 // anonymous ones that newer ones replaced
	Silent              uint64 // closed without credentials in time
}

// connectionMetrics are the metrics of connections.
func connectionMetrics(get func() Connections) []prometheus.Collector {
	gauge := func(credentials string, of func(Connections) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "agentfense_connections", Help: "Connections of gRPC and REST, by whether credentials were shown.",
			ConstLabels: prometheus.Labels{"credentials": credentials},
		}, func() float64 { return float64(of(get())) })
	}
	counter := func(reason string, of func(Connections) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "agentfense_connections_closed_total", Help: "Connections without credentials that the server closed.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 { return float64(of(get())) })
	}
	return []prometheus.Collector{
		gauge("none", func(c Connections) int { return c.Anonymous }),
		gauge("shown", func(c Connections) int { return c.Admitted }),
		counter("limit", func(c Connections) uint64 { return c.Evicted }),
		counter("silent", func(c Connections) uint64 { return c.Silent }),
	}
}

func newMetrics(registry *prometheus.Registry, connections func() Connections) (*metrics, error) {
	m := &metrics{
		page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentfense_http_requests_total",
			Help: "Requests to the REST interface, by method and status.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "agentfense_http_request_seconds",
			Help:    "How long requests took, streams to their end.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 120},
		}, []string{"method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agentfense_http_requests_in_flight",
			Help: "Requests that are being served.",
		}),
	}
	all := []prometheus.Collector{m.requests, m.seconds, m.inFlight}
	if connections != nil {
		all = append(all, connectionMetrics(connections)...)
	}
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// count wraps next with the metrics. It also counts requests that panic, as an aborted download
// does.
func (m *metrics) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, begun, sw := methodLabel(r.Method), time.Now(), &statusWriter{ResponseWriter: w, code: http.StatusOK}
		m.inFlight.Inc()
		defer func() {
			m.inFlight.Dec()
			m.requests.WithLabelValues(method, strconv.Itoa(sw.code)).Inc()
			m.seconds.WithLabelValues(method).Observe(time.Since(begun).Seconds())
		}()
		next.ServeHTTP(sw, r)
	})
}

func methodLabel(method string) string {
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	if slices.Contains(known, method) {
		return method
	}
	return "other"
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader sends code. It does not record a 1xx status, because another one follows.
func (w *statusWriter) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap supports http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
