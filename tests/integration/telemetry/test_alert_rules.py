"""Each alert, by promtool: on series on which it fires, and on others."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.telemetry.test_alerts import RULES, rules

pytestmark = pytest.mark.debian

UP = 'up{job="caxton", instance="a"}'
CREDENTIALS = 'http_server_request_duration_seconds_count{http_response_status_code="'
COMMIT = "caxton_eventstore_append_duration_seconds_bucket"
COUNTERS = "caxton_call_decisions_total"

#: Alert, minutes, series on which it fires, and those on which it does not. See
#: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules
SCENARIOS: list[tuple[str, int, dict[str, str], dict[str, str]]] = [
    ("CaxtonHostDown", 5, {UP: "1 1 0x20"}, {UP: "1 0 1x20"}),
    ("CaxtonHostDown", 5, {}, {UP: "1x20"}),
    (
        "CaxtonHostRestarts",
        15,
        {"caxton_process_start_time_seconds": "100x5 200x5 300x5 400x20"},
        {"caxton_process_start_time_seconds": "100x5 200x40"},
    ),
    (
        "CaxtonLogUnusable",
        5,
        {"caxton_eventstore_up": "1x3 0x20"},
        {"caxton_eventstore_up": "1x8 0 1x20"},
    ),
    (
        "CaxtonLogUnusable",
        9,
        {'caxton_calls_total{status="unrecorded"}': "_x14 1x20"},
        {'caxton_calls_total{status="ok"}': "_x14 1x20"},
    ),
    (
        "CaxtonLogUnusable",
        5,
        {'caxton_look_failures_total{what="health"}': "0+1x20"},
        {'caxton_look_failures_total{what="sizes"}': "0+1x20"},
    ),
    (
        "CaxtonDiskFills",
        20,
        {"caxton_eventstore_free_bytes": "3e9 1e9x60"},
        {"caxton_eventstore_free_bytes": "3e9x60"},
    ),
    (
        "CaxtonDiskFills",
        20,
        {"caxton_eventstore_free_bytes": "100e9-0.05e9x60"},
        {"caxton_eventstore_free_bytes": "100e9-0.01e9x60"},
    ),
    (
        "CaxtonAuditBroken",
        5,
        {"caxton_audit_intact": "1x5 0x20"},
        {"caxton_audit_intact": "_x5 1x20"},
    ),
    (
        "CaxtonCheckpointOld",
        12,
        {"caxton_checkpoint_age_seconds": "0+30x40"},
        {"caxton_checkpoint_age_seconds": "0x10 4000 0x40"},
    ),
    (
        "CaxtonAnchorFails",
        30,
        {"caxton_anchor_failures_total": "0x10 0+1x50"},
        {"caxton_anchor_failures_total": "0x10 2x50"},
    ),
    (
        "CaxtonSinkLags",
        15,
        {'caxton_sink_lag_seconds{sink="anchor"}': "0+30x40"},
        {'caxton_sink_lag_seconds{sink="anchor"}': "0+10x40"},
    ),
    (
        "CaxtonServerDown",
        8,
        {'caxton_server_up{server="demo"}': "1 0x30"},
        {'caxton_server_up{server="demo"}': "0x8 1x30"},
    ),
    (
        "CaxtonBreakerOpen",
        5,
        {'caxton_server_breaker{server="demo"}': "0 2x30"},
        {'caxton_server_breaker{server="demo"}': "0 1x30"},
    ),
    (
        "CaxtonConfinementRefused",
        12,
        {'caxton_confinement_refusals_total{server="demo",what="file"}': "_x15 1x20"},
        {'caxton_confinement_refusals_total{server="demo",what="file"}': "1x60"},
    ),
    (
        "CaxtonConfinementRefused",
        12,
        {'caxton_confinement_refusals_total{server="demo",what="file"}': "1x15 2x20"},
        {},
    ),
    (
        "CaxtonCallInDoubt",
        12,
        {'caxton_call_in_doubt_total{server="demo",tool="t"}': "_x15 1x20"},
        {'caxton_call_in_doubt_total{server="demo",tool="t"}': "0x15 0x20"},
    ),
    (
        "CaxtonCallInDoubt",
        12,
        {'caxton_waits{kind="in_doubt"}': "1x30"},
        {'caxton_waits{kind="approval"}': "1x30"},
    ),
    (
        "CaxtonApprovalWaits",
        20,
        {'caxton_waits_age_seconds{kind="approval"}': "0+30x60"},
        {'caxton_waits_age_seconds{kind="in_doubt"}': "0+30x60"},
    ),
    (
        "CaxtonRunsSuspended",
        20,
        {'caxton_runs_suspended{reason="frozen"}': "0 1x60"},
        {'caxton_runs_suspended{reason="approval"}': "0 1x60"},
    ),
    (
        "CaxtonQueueWaits",
        6,
        {"caxton_runs_waiting_age_seconds": "0+30x30"},
        {"caxton_runs_waiting_age_seconds": "30x30"},
    ),
    (
        "CaxtonBudgetNearlyUsed",
        5,
        {'caxton_budget_used{agent="weather"}': "0.5x5 0.95x20"},
        {'caxton_budget_used{agent="weather"}': "0.5x5 0.9x20"},
    ),
    (
        "CaxtonCallsDenied",
        15,
        {COUNTERS + '{verdict="deny",code="not_granted"}': "0+60x60"},
        {COUNTERS + '{verdict="allow",code=""}': "0+60x60"},
    ),
    (
        "CaxtonLoopBlocked",
        10,
        {"caxton_loop_delay_seconds_sum": "0+15x60"},
        {"caxton_loop_delay_seconds_sum": "0+1x60"},
    ),
    (
        "CaxtonCommitsSlow",
        20,
        {
            COMMIT + '{le="0.1"}': "0+10x60",
            COMMIT + '{le="0.2"}': "0+100x60",
            COMMIT + '{le="+Inf"}': "0+100x60",
        },
        {COMMIT + '{le="0.1"}': "0+100x60", COMMIT + '{le="+Inf"}': "0+100x60"},
    ),
    (
        "CaxtonBadCredentials",
        6,
        {CREDENTIALS + '401"}': "0+60x60"},
        {CREDENTIALS + '401"}': "0+3x60", CREDENTIALS + '200"}': "0+60x60"},
    ),
    (
        "CaxtonOverloaded",
        10,
        {CREDENTIALS + '429"}': "0+9x60"},
        {CREDENTIALS + '429"}': "0 9x60"},
    ),
    (
        "CaxtonTokenExpires",
        5,
        {'caxton_token_expiry_seconds{kind="served"}': "605000-30x60"},
        {'caxton_token_expiry_seconds{kind="served"}': "7776000-30x60"},
    ),
    (
        "CaxtonWorkersDie",
        10,
        {"caxton_worker_deaths_total": "0x5 0+1x30"},
        {"caxton_worker_deaths_total": "0x5 2x30"},
    ),
    (
        "CaxtonReplayDiverged",
        10,
        {"caxton_replay_divergences_total": "0x5 1x30"},
        {"caxton_replay_divergences_total": "1x30"},
    ),
    (
        "CaxtonTelemetryLost",
        10,
        {'caxton_telemetry_lost_total{signal="spans"}': "_x5 3x30"},
        {'caxton_telemetry_lost_total{signal="spans"}': "3x60"},
    ),
    (
        "CaxtonMetricsMissing",
        10,
        {'caxton_look_failures_total{what="runs"}': "0+1x30"},
        {'caxton_look_failures_total{what="runs"}': "0x5 1x30"},
    ),
]


def scenario(
    alert: str, minutes: int, series: dict[str, str], *, fires: bool
) -> dict[str, Any]:
    return {
        "name": f"{alert} {'fires' if fires else 'is quiet'}",
        "interval": "30s",
        "input_series": [{"series": k, "values": v} for k, v in series.items()],
        "promql_expr_test": [
            {
                "expr": f'sum(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def test_each_alert_fires_on_its_series_and_is_quiet_on_others(tmp_path: Path) -> None:
    assert {alert for alert, *_ in SCENARIOS} == {rule["alert"] for rule in rules()}
    tests = [
        scenario(alert, minutes, series, fires=fires)
        for alert, minutes, *both in SCENARIOS
        for series, fires in zip(both, (True, False), strict=True)
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": "30s",
                "tests": tests,
            }
        )
    )
    done = subprocess.run(
        ["/usr/bin/promtool", "test", "rules", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
