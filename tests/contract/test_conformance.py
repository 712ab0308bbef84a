"""Every line of the five published designs and their supplement, and the tests that show it: the list behind
docs/conformance.md, which is written on demand.

Rule: a line names the tests that fail when it is broken, and no others. While no test shows all of it, it
names none and is `open`. Tests are named at the lines, not lines at the tests: a line needs its words in any
case, and so one page says what is shown by what.

    make conformance    # or: python tests/contract/test_conformance.py
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"

IDS = [
    f"{part}{k}"
    for part, count in {"T": 15, "M": 16, "D": 16, "R": 18, "K": 7, "S": 10}.items()
    for k in range(1, count + 1)
]

LINES = [
    (
        "T1",
        "level by level: proposals for each thought, a score for each, the best of a level go on",
        "tests/search/test_tree_of_thoughts.py::test_t1_t15_thirty_calls_with_the_defaults",
        "tests/search/test_tree_of_thoughts.py::test_t1_the_best_of_a_level_are_expanded",
    ),
    (
        "T2",
        "the search stops when its best kept thought reaches the threshold",
        "tests/search/test_tree_of_thoughts.py::test_t2_stops_when_a_kept_thought_reaches_the_threshold",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
    ),
    (
        "T3",
        "a floor: what scores less is dropped, even where there is room",
        "tests/search/test_tree_of_thoughts.py::test_t3_a_floor_drops_even_when_the_beam_has_room",
    ),
    (
        "T4",
        "the calls of a level at once, or strictly one after another",
        "tests/search/test_tree_of_thoughts.py::test_t4_parallel_false_asks_one_after_another",
    ),
    (
        "T5",
        "prompts can be replaced; the default ones ask for one concise step, and for a score first",
        "tests/search/test_tree_of_thoughts.py::test_t5_prompts_can_be_replaced_and_nothing_inside_them_is_filled_twice",
        "tests/search/test_tree_of_thoughts.py::test_t5_m10_a_plain_prompt_is_the_system_text",
        "tests/search/test_tree_of_thoughts.py::test_t5_default_thoughts_are_stored_stripped",
        "tests/domains/test_general.py::test_the_default_prompts_ask_for_one_step_and_for_a_score_first",
        "tests/search/test_source_names.py::test_an_option_of_a_source_works_in_its_preset_and_stands_in_its_docstring",
    ),
    (
        "T6",
        "what proposer and evaluator see of the path; an empty one is said in words",
        "tests/search/test_tree_of_thoughts.py::test_t6_proposer_sees_the_path_and_evaluator_the_steps_before",
        "tests/domains/test_general.py::test_the_proposer_sees_problem_and_numbered_steps",
        "tests/domains/test_general.py::test_the_evaluator_sees_problem_steps_before_and_candidate",
    ),
    (
        "T7",
        "the root is the problem, at depth 0 with score 1, and costs no call",
        "tests/search/test_tree_of_thoughts.py::test_t7_the_root_costs_nothing",
    ),
    (
        "T8",
        "bad settings are refused by name when they are given",
        "tests/search/test_tree_of_thoughts.py::test_t8_bad_settings_are_refused_by_name",
        "tests/core/test_parts.py::test_t8_presets_take_overrides",
        "tests/core/test_parts.py::test_t8_settings_have_a_validated_copy",
        "tests/core/test_parts.py::test_t8_an_unvalidated_copy_of_settings_is_refused",
    ),
    (
        "T9",
        "the answer is the best thought of the whole tree; every thought is kept",
        "tests/search/test_tree_of_thoughts.py::test_t9_the_answer_is_the_best_of_the_whole_tree",
        "tests/runtime/test_budget.py::test_before_any_score_the_first_unscored_thought_answers",
        "tests/runtime/test_budget.py::test_no_score_arrives_and_time_or_money_ends_it",
    ),
    (
        "T10",
        "events with their fields, whole texts included: they rebuild the tree",
        "tests/search/test_tree_of_thoughts.py::test_t10_events_and_fields",
        "tests/search/test_tree_of_thoughts.py::test_t10_a_run_without_thoughts_ends_with_an_empty_beam_and_no_thoughts",
        "tests/record/test_search_notes.py::test_t10_the_live_stream_has_the_named_events_of_the_frame",
        "tests/record/test_search_notes.py::test_levels_follow_from_the_tree",
        "tests/search/test_tree_of_thoughts.py::test_t2_stops_when_a_kept_thought_reaches_the_threshold",
        "tests/search/test_tree_of_thoughts.py::test_t3_a_floor_drops_even_when_the_beam_has_room",
        "tests/search/test_tree_of_thoughts.py::test_t9_the_answer_is_the_best_of_the_whole_tree",
        "tests/search/test_tree_of_thoughts.py::test_t10_thoughts_are_recorded_whole",
        "tests/search/test_tree_of_thoughts.py::test_every_search_keeps_its_limits_and_its_record",
        "tests/analysis/test_frames.py::test_events_have_the_fields_of_the_architecture",
        "tests/runtime/test_budget.py::test_at_80_percent_there_is_a_warning_beside_the_record",
        "tests/runtime/test_budget.py::test_each_refusal_is_told_of_beside_the_record",
    ),
    (
        "T11",
        "caps on tokens, USD and time, kept before each call; the stop names the cap",
        "tests/runtime/test_budget.py::test_token_caps_are_never_overshot_when_max_tokens_is_kept",
        "tests/runtime/test_budget.py::test_a_cap_on_seconds_ends_the_calls_in_flight",
        "tests/runtime/test_budget.py::test_a_cap_of_nothing_asks_nothing",
        "tests/runtime/test_budget.py::test_a_cheap_first_call_does_not_let_the_others_through",
        "tests/runtime/test_budget.py::test_without_max_tokens_calls_are_admitted_in_a_ramp",
        "tests/runtime/test_budget.py::test_with_unknown_prices_the_overshoot_is_within_the_stated_bound",
        "tests/runtime/test_budget.py::test_with_known_prices_the_cap_is_never_exceeded",
        "tests/runtime/test_budget.py::test_t11_calls_that_fit_the_cap_exactly_are_made",
        "tests/runtime/test_budget.py::test_absurd_usage_counts_the_whole_reservation",
        "tests/runtime/test_budget.py::test_before_any_score_the_first_unscored_thought_answers",
    ),
    (
        "T12",
        "calls, tokens and cost add up per run and per thought",
        "tests/search/test_tree_of_thoughts.py::test_t12_usage_adds_up_per_run_and_per_node",
        "tests/analysis/test_frames.py::test_sums_are_the_runs",
    ),
    (
        "T13",
        "each call is known by thought, kind and draw; a rerun makes none",
        "tests/models/slow/test_cache.py::test_a_rerun_asks_nothing_and_gives_the_same_record",
        "tests/record/test_journal.py::test_a_replay_repeats_the_record_without_a_model",
        "tests/runtime/test_driver.py::test_one_draw_asked_twice_is_an_error_that_names_the_thought",
    ),
    (
        "T14",
        "wrapped by Reflexion, or one step of another; a strategy's settings name those that it uses",
        "tests/search/test_tree_of_thoughts.py::test_t14_the_strategies_that_one_uses_are_its_settings",
        "tests/strategies/test_reflexion.py::test_around_a_search_it_is_one_tree_that_replays_and_resumes",
        "tests/strategies/test_plan_execute.py::test_a_step_is_solved_by_a_tree_search_and_drawn_as_one_tree",
    ),
    (
        "T15",
        "the number of calls, 30 with the defaults, is known before the run",
        "tests/search/test_tree_of_thoughts.py::test_t1_t15_thirty_calls_with_the_defaults",
        "tests/contract/test_contract.py::test_a_strategy_keeps",
    ),
    (
        "M1",
        "a model and a search per strategy; one call makes siblings, one scores them; ranges of settings",
        "tests/search/test_tree_of_thoughts.py::test_m1_one_call_each_for_siblings_and_their_scores",
        "tests/search/test_tree_of_thoughts.py::test_m1_each_strategy_may_have_a_model_of_its_own",
        "tests/search/test_tree_of_thoughts.py::test_m1_searches_are_named",
        "tests/search/test_source_names.py::test_an_option_of_a_source_works_in_its_preset_and_stands_in_its_docstring",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
        "tests/search/test_tree_of_thoughts.py::test_t8_bad_settings_are_refused_by_name",
        "tests/runtime/test_budget.py::test_a_bad_cap_is_refused_by_name",
        "tests/contract/test_designs.py::test_bad_settings_of_a_tool_are_refused_by_name",
        "tests/core/test_parts.py::test_m1_the_designs_names_of_searches_are_accepted",
        "tests/lab/test_settings.py::test_m1_a_named_model_is_that_of_a_lab_a_role_and_a_strategy",
        "tests/lab/test_settings.py::test_m1_a_run_with_a_named_model_needs_no_settings_file_later",
        "tests/lab/test_settings.py::test_m1_a_named_model_has_its_server_and_key_and_records_no_key",
    ),
    (
        "M2",
        "a search is pure: driven by hand with replies, results and errors, it does the same",
        "tests/contract/test_project.py::test_ideas_are_pure",
        "tests/contract/test_contract.py::test_a_strategy_keeps",
    ),
    (
        "M3",
        "at the depth limit a path ends and the search goes on: depth-first backtracks in score order",
        "tests/search/test_tree_of_thoughts.py::test_m3_depth_first_backtracks_in_score_order",
    ),
    (
        "M4",
        "a cap on thoughts that is never overshot, and one on time",
        "tests/search/test_tree_of_thoughts.py::test_m4_max_nodes_is_never_overshot_and_used_up",
        "tests/runtime/test_budget.py::test_a_cap_on_seconds_ends_the_calls_in_flight",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
    ),
    (
        "M5",
        "success counts from a least depth on",
        "tests/search/test_tree_of_thoughts.py::test_m5_success_counts_from_min_depth_on",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
    ),
    (
        "M6",
        "converged: the best score, which never falls, rose too little over a window",
        "tests/search/test_tree_of_thoughts.py::test_m6_convergence_and_a_window_of_one_is_off",
        "tests/search/test_tree_of_thoughts.py::test_m6_m7_bfs_expands_keeps_and_converges_as_the_state_machine_does",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
    ),
    (
        "M7",
        "a width for each search; what is trimmed is recorded",
        "tests/search/test_tree_of_thoughts.py::test_m7_what_is_trimmed_is_recorded",
        "tests/search/test_tree_of_thoughts.py::test_m6_m7_bfs_expands_keeps_and_converges_as_the_state_machine_does",
        "tests/search/test_tree_of_thoughts.py::test_t1_the_best_of_a_level_are_expanded",
    ),
    (
        "M8",
        "the result ranks leaves by score, depth and id",
        "tests/search/test_tree_of_thoughts.py::test_m8_leaves_are_ranked_by_score_depth_and_id",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
    ),
    (
        "M9",
        "unreadable replies are asked for again, counted per thought; an unreadable score is never a number",
        "tests/search/test_tree_of_thoughts.py::test_m9_parse_retries_take_new_draws_and_an_unread_score_stays_unread",
        "tests/contract/test_contract.py::test_any_reply_is_survived_and_no_score_is_made_up",
    ),
    (
        "M10",
        "both prompts can be replaced, and the evaluator sees problem and path",
        "tests/search/test_tree_of_thoughts.py::test_m10_replaced_prompts_see_problem_and_path",
        "tests/search/test_tree_of_thoughts.py::test_t5_m10_a_plain_prompt_is_the_system_text",
        "tests/domains/test_general.py::test_joint_and_vote_show_every_candidate",
    ),
    (
        "M11",
        "tools inside a search: which, in how many turns, with what timeout, retries and backoff",
        "tests/strategies/test_react.py::test_the_proposer_of_a_search_may_ask_for_tools_first",
        "tests/strategies/test_react.py::test_a_proposer_stops_asking_at_its_limit",
        "tests/tools/test_tools.py::test_timeouts_retries_and_backoff_are_those_of_the_design",
        "tests/strategies/test_react.py::test_m11_a_strategy_limits_the_time_and_the_retries_of_its_tools",
        "tests/strategies/test_react.py::test_m11_each_limit_replaces_that_of_the_tool_alone",
        "tests/strategies/test_react.py::test_m11_limits_that_are_not_set_are_not_recorded",
        "tests/tools/test_tools.py::test_arguments_are_checked_and_read_as_json_means_them",
        "tests/search/test_tree_of_thoughts.py::test_presets_are_their_sources_defaults",
    ),
    (
        "M12",
        "effects of tools: deny beats allow, and the stricter of lab and strategy holds",
        "tests/tools/test_tools.py::test_the_effect_policy_keeps_its_whole_table",
        "tests/tools/test_tools.py::test_m12_a_tool_that_the_lab_denies_is_an_error_at_construction",
        "tests/tools/test_tools.py::test_m12_tools_given_by_name_and_those_of_a_replay_keep_the_policy",
        "tests/tools/test_tools.py::test_m12_a_tool_that_a_strategy_denies_is_not_offered",
        "tests/strategies/test_react.py::test_a_strategy_may_allow_less_than_its_lab",
        "tests/strategies/test_react.py::test_a_strategy_cannot_allow_more_than_its_lab",
    ),
    (
        "M13",
        "why a search stopped, in one vocabulary; of several reasons solved first, then caps, then converged",
        "tests/search/test_tree_of_thoughts.py::test_m13_reasons_in_one_vocabulary",
        "tests/search/test_tree_of_thoughts.py::test_m14_accessors",
        "tests/search/test_tree_of_thoughts.py::test_m9_parse_retries_take_new_draws_and_an_unread_score_stays_unread",
        "tests/runtime/test_budget.py::test_a_cap_on_seconds_ends_the_calls_in_flight",
        "tests/runtime/test_budget.py::test_solved_beats_the_cap_that_was_met",
        "tests/runtime/test_driver.py::test_a_model_that_fails_on_all_calls_ends_the_run_with_error",
    ),
    (
        "M14",
        "best thought, all thoughts, result and the path to the solution; no result before the end",
        "tests/search/test_tree_of_thoughts.py::test_m14_accessors",
    ),
    (
        "M15",
        "the text so far of each open call can be watched",
        "tests/runtime/slow/test_gateway.py::test_the_text_so_far_can_be_watched",
        "tests/runtime/slow/test_gateway.py::test_calls_that_are_open_at_once_are_watched_apart",
        "tests/runtime/slow/test_gateway.py::test_a_watched_run_hears_the_text_so_far",
        "tests/models/test_streaming.py::test_an_async_generator_streams_and_gives_the_run_of_one_that_answers_at_once",
        "tests/views/test_explorer_widget.py::test_m15_the_text_so_far_of_what_is_selected_is_told_until_its_reply_is_there",
        "tests/views/slow/test_explorer_lab.py::test_the_text_so_far_of_a_selected_thought_is_shown_until_its_reply_is_there",
    ),
    (
        "M16",
        "a second query is answered `busy`, and the first loses nothing",
        "tests/strategies/test_plans.py::test_a_session_answers_busy_to_a_second_query_and_loses_nothing_of_the_first",
        "tests/strategies/test_plans.py::test_a_session_is_free_again_after_a_cancel_and_a_bug",
    ),
    (
        "D1",
        "branch, develop, converge: N + 2 calls an iteration",
        "tests/strategies/test_deep_think.py::test_d1_n_plus_2_calls_an_iteration_and_fifteen_with_the_defaults",
        "tests/strategies/test_deep_think.py::test_d1_what_the_stages_ask_for",
        "tests/strategies/test_deep_think.py::test_d1_s8_converge_is_told_the_confidence_and_the_reflection_of_each_branch",
    ),
    (
        "D2",
        "branches that differ; later iterations see the earlier ones",
        "tests/strategies/test_deep_think.py::test_d2_branches_differ_and_later_ones_are_told_what_came_before",
        "tests/strategies/test_deep_think.py::test_what_does_not_fit_is_shortened_and_each_cut_is_a_note",
        "tests/strategies/test_deep_think.py::test_a_shortened_text_is_a_finding_and_a_line_of_the_report",
    ),
    (
        "D3",
        "develop: plan, execute, observe, reflect in one prompt",
        "tests/strategies/test_deep_think.py::test_d3_develop_goes_through_its_stages_in_one_prompt",
    ),
    (
        "D4",
        "stops when told to, when confident enough, or at its iterations",
        "tests/strategies/test_deep_think.py::test_d4_when_it_stops",
    ),
    (
        "D5",
        "parameters and presets; what is clamped is reported",
        "tests/strategies/test_deep_think.py::test_d5_settings_are_clamped_and_the_run_says_so",
        "tests/strategies/test_deep_think.py::test_d5_the_presets",
        "tests/strategies/test_deep_think.py::test_d5_what_is_known_beforehand_is_the_context",
        "tests/lab/test_deep_think_tool.py::test_d5_s7_it_takes_the_sizes_of_the_search",
    ),
    (
        "D6",
        "branches ranked by evaluation, matched by name; lessons of all go on",
        "tests/strategies/test_deep_think.py::test_d6_ranked_by_score_and_matched_by_name_though_the_model_reorders",
        "tests/strategies/test_deep_think.py::test_d6_by_place_only_where_no_name_tells",
        "tests/strategies/test_deep_think.py::test_d6_the_beam_is_kept_and_the_rest_pruned_but_the_lessons_of_all_go_on",
        "tests/strategies/test_deep_think.py::test_d6_no_score_reaches_another_approach_without_a_warning",
        "tests/strategies/test_deep_think.py::test_d6_the_model_reorders_and_decorates_and_every_score_stays_with_its_approach",
        "tests/strategies/test_deep_think.py::test_d6_scores_in_other_forms_and_scales",
        "tests/strategies/test_deep_think.py::test_d6_a_scale_that_is_not_certain_is_said",
    ),
    (
        "D7",
        "JSON is read in three tiers: the whole text, a fence, the first balanced brackets",
        "tests/core/test_reading.py::test_the_first_json_of_three_tiers_is_read",
        "tests/strategies/test_deep_think.py::test_d7_a_development_that_was_cut_off_is_marked_and_its_confidence_assumed",
        "tests/strategies/test_deep_think.py::test_d7_approaches_that_were_cut_off_are_marked",
        "tests/strategies/test_deep_think.py::test_d7_what_is_whole_is_not_marked",
    ),
    (
        "D8",
        "fallbacks for what cannot be read, marked as assumed; a failed call costs its branch",
        "tests/strategies/test_deep_think.py::test_d8_a_branch_reply_that_cannot_be_read_is_the_direct_approach",
        "tests/strategies/test_deep_think.py::test_d8_a_synthesis_in_prose_is_the_synthesis",
        "tests/strategies/test_deep_think.py::test_d8_a_later_stage_that_fails_leaves_the_earlier_synthesis",
        "tests/strategies/test_deep_think.py::test_d8_a_development_that_cannot_be_read_is_the_solution_with_an_assumed_confidence",
        "tests/strategies/test_deep_think.py::test_d8_d16_an_assumed_confidence_decides_nothing",
        "tests/strategies/test_deep_think.py::test_d8_a_call_that_fails_costs_its_branch_and_is_not_shown_to_converge",
        "tests/strategies/test_deep_think.py::test_d8_without_a_usable_synthesis_the_best_readable_branch_answers",
        "tests/strategies/test_deep_think.py::test_d8_refusals_at_every_stage_end_after_one_iteration",
        "tests/strategies/test_deep_think.py::test_d8_each_fallback_is_a_warning_in_the_log",
    ),
    (
        "D9",
        "four calls at once in the process; timeouts for a call and for a group",
        "tests/strategies/test_deep_think.py::test_d9_four_calls_at_once_over_all_runs_of_the_process",
        "tests/strategies/test_deep_think.py::test_d9_a_call_that_takes_too_long_costs_its_branch",
        "tests/strategies/test_deep_think.py::test_d9_a_group_takes_twice_that_at_most",
        "tests/strategies/test_deep_think.py::test_d9_the_time_of_deep_think_takes_the_place_of_the_labs",
        "tests/strategies/test_deep_think.py::test_d9_a_group_has_twice_the_time_of_a_call_from_its_first_call_on",
        "tests/strategies/test_deep_think.py::test_d9_the_report_says_which_limit_cut",
    ),
    (
        "D10",
        "temperature, providers, keys, context windows, default models",
        "tests/strategies/test_deep_think.py::test_d10_the_temperature_is_a_setting",
        "tests/lab/test_settings.py::test_who_is_asked",
        "tests/lab/test_settings.py::test_provider_url_key_and_context_window_reach_the_server",
        "tests/lab/test_settings.py::test_option_goes_before_environment_project_user_and_default",
    ),
    (
        "D11",
        "a report in Markdown",
        "tests/analysis/test_deep_thought.py::test_d11_the_report_line_by_line",
        "tests/analysis/test_deep_thought.py::test_d11_what_is_one_line_stands_behind_its_label",
    ),
    (
        "D12",
        "records of branches and iterations",
        "tests/strategies/test_deep_think.py::test_d12_the_records_hold_all_of_a_branch_and_an_iteration",
    ),
    (
        "D13",
        "`%%think`: classify the task, gather with tools, then think",
        "tests/strategies/test_gather_then_think.py::test_d13_the_categories_are_those_of_the_design_and_so_are_the_tool_heavy_ones",
        "tests/strategies/test_gather_then_think.py::test_d13_one_category_hit_costs_no_call",
        "tests/strategies/test_gather_then_think.py::test_d13_else_one_model_call_decides_and_is_never_offered_general",
        "tests/strategies/test_gather_then_think.py::test_d13_an_unknown_label_is_general",
        "tests/strategies/test_gather_then_think.py::test_d13_what_was_gathered_and_the_tools_own_words_are_the_thinkers_context",
        "tests/apps/slow/test_magics.py::test_a_cell_has_its_question_below",
        "tests/apps/slow/test_magics.py::test_a_later_thought_knows_the_earlier_ones",
        "tests/apps/slow/test_magics.py::test_d13_tools_are_given_in_the_line_and_gather",
        "tests/lab/test_settings.py::test_d13_tools_of_a_file_are_those_of_its_lab",
        "tests/strategies/test_gather_then_think.py::test_d13_the_report_says_what_was_gathered_by_which_tools_and_from_where",
        "tests/strategies/test_gather_then_think.py::test_d13_the_report_says_so_when_nothing_was_gathered",
        "tests/lab/test_memory.py::test_s5_what_deep_think_concluded_is_known_to_a_later_agent",
    ),
    (
        "D14",
        "an agent may call it as a tool, which says when to",
        "tests/lab/test_deep_think_tool.py::test_its_description_says_when_to_use_it_and_when_not",
        "tests/lab/test_deep_think_tool.py::test_the_system_prompt_of_an_agent_that_has_it_gives_a_short_guidance",
        "tests/lab/test_deep_think_tool.py::test_a_reasoning_memory_mode_strengthens_the_guidance",
        "tests/lab/test_deep_think_tool.py::test_naming_it_in_the_request_guarantees_its_use",
        "tests/lab/test_deep_think_tool.py::test_d14_a_model_that_ignores_it_does_not_prevent_its_use",
        "tests/lab/test_deep_think_tool.py::test_d14_a_plan_that_cannot_be_read_still_calls_it",
        "tests/lab/test_deep_think_tool.py::test_d14_a_tree_of_thoughts_with_tools_uses_it_when_it_is_named",
        "tests/lab/test_deep_think_tool.py::test_d14_with_one_turn_react_answers_with_what_it_gave",
        "tests/lab/test_deep_think_tool.py::test_d14_the_report_is_shortened_by_the_callers_limit_alone",
    ),
    (
        "D15",
        "a research delegate fetches the pages again and extracts from them",
        "tests/strategies/test_research.py::test_d15_which_addresses_were_fetched",
        "tests/strategies/test_research.py::test_d15_schemas_and_field_names_reach_the_thinker_where_cut_output_had_lost_them",
        "tests/strategies/test_research.py::test_d15_a_page_beyond_the_share_of_the_window_is_cut_and_that_is_said",
        "tests/strategies/test_research.py::test_d15_what_was_not_copied_letter_by_letter_is_marked",
        "tests/strategies/test_research.py::test_d15_the_window_is_that_of_the_setting_the_model_or_the_table_and_what_is_assumed_is_said",
    ),
    (
        "D16",
        "the answer is that of the most confident iteration",
        "tests/strategies/test_deep_think.py::test_d16_the_most_confident_iteration_answers_and_of_equals_the_later",
        "tests/strategies/test_deep_think.py::test_d8_d16_an_assumed_confidence_decides_nothing",
    ),
    (
        "R1",
        "ReAct: think, act by tool calls, observe, until `final-answer` or the limit; also without tools",
        "tests/strategies/test_react.py::test_it_thinks_acts_observes_and_answers",
        "tests/strategies/test_react.py::test_without_tools_a_call_gets_words_and_the_loop_goes_on",
        "tests/strategies/test_react.py::test_it_stops_at_the_limit_with_what_was_said_last",
        "tests/contract/test_designs.py::test_the_defaults_are_the_designs",
        "tests/strategies/test_named_strategies.py::test_a_lab_with_tools_runs_react_by_default",
        "tests/lab/test_lab_defaults.py::test_r12_a_lab_runs_the_strategy_that_it_was_given",
    ),
    (
        "R2",
        "Reflexion: try, criticise, try again with the lessons, until satisfied, stagnated or out of retries",
        "tests/strategies/test_reflexion.py::test_it_tries_until_the_critique_is_satisfied",
        "tests/strategies/test_reflexion.py::test_what_a_critique_says",
        "tests/core/test_verdicts.py::test_r2_a_verdict_is_read_as_it_was_meant",
        "tests/strategies/test_plan_execute.py::test_r2_a_review_that_states_satisfied_runs_no_further_tool_call",
        "tests/strategies/test_reflexion.py::test_what_counts_as_stagnation",
        "tests/strategies/test_reflexion.py::test_it_ends_when_the_critique_repeats_itself",
        "tests/strategies/test_reflexion.py::test_it_ends_after_its_retries",
        "tests/strategies/test_reflexion.py::test_a_deep_critique_looks_at_the_way_too",
        "tests/strategies/test_reflexion.py::test_lessons_of_earlier_runs_stand_in_the_header_and_in_every_attempt",
        "tests/lab/slow/test_lessons.py::test_what_one_run_learnt_is_recalled_for_a_similar_task",
        "tests/contract/test_designs.py::test_the_defaults_are_the_designs",
        "tests/lab/test_memory.py::test_r2_prior_critiques_load_and_are_stored_without_further_calls",
    ),
    (
        "R3",
        "Plan–Execute–Reflect: a typed plan, its steps, a look back at the goal, refinements",
        "tests/strategies/test_plan_execute.py::test_each_type_of_step_is_carried_out_in_its_own_way",
        "tests/strategies/test_plan_execute.py::test_the_depth_of_reflection",
        "tests/strategies/test_plan_execute.py::test_refinements_come_to_an_end_with_what_was_said_last",
        "tests/strategies/test_plan_execute.py::test_replanning_puts_other_steps_in_place_of_all_that_are_open",
        "tests/strategies/test_plan_execute.py::test_steps_of_a_wave_run_at_once_and_the_next_wave_waits",
        "tests/contract/test_designs.py::test_the_defaults_are_the_designs",
        "tests/strategies/test_plan_execute.py::test_r7_r3_patches_and_refinements_have_limits_of_their_own",
        "tests/strategies/test_plan_execute.py::test_r3_a_plan_cut_off_by_its_length_is_asked_for_again",
        "tests/strategies/test_plan_execute.py::test_r3_a_failing_tool_is_tried_once_and_once_for_each_retry_of_its_step",
    ),
    (
        "R4",
        "the fields of plans and steps; the model writes content, all else is added",
        "tests/strategies/test_plans.py::test_ids_seq_and_status_are_added_to_what_a_model_writes",
        "tests/strategies/test_plans.py::test_a_plan_is_the_same_from_the_record_and_from_the_database",
        "tests/strategies/test_plan_execute.py::test_a_budget_ends_it_with_what_it_has",
        "tests/contract/test_designs.py::test_a_plan_has_the_fields_of_the_design",
        "tests/strategies/test_plans.py::test_r4_ids_that_a_model_writes_are_renumbered_with_what_refers_to_them",
        "tests/strategies/test_plans.py::test_r4_r6_a_wrong_reference_costs_its_step_and_never_the_plan",
        "tests/strategies/test_plan_execute.py::test_r4_an_unknown_tool_fails_its_step_alone_and_the_plan_is_not_asked_for_again",
        "tests/lab/test_lab_defaults.py::test_s2_r4_calls_of_tools_and_plans_are_attributed_to_the_agent",
    ),
    (
        "R5",
        "a tool_call step asks no model, analysis is one call, composite is a loop with the tools it names",
        "tests/strategies/test_plan_execute.py::test_each_type_of_step_is_carried_out_in_its_own_way",
        "tests/strategies/test_plans.py::test_r5_a_composite_step_has_the_tools_of_its_hints_and_no_others",
    ),
    (
        "R6",
        "references to results, whole or the first 500 characters; a bad one reaches no tool",
        "tests/strategies/test_plan_execute.py::test_a_summary_is_the_first_500_characters_and_a_reference_the_whole",
        "tests/strategies/test_plan_execute.py::test_a_reference_that_cannot_hold_fails_the_step_and_reaches_no_tool",
        "tests/strategies/test_plans.py::test_references_are_filled_in_wherever_they_stand",
        "tests/strategies/test_plans.py::test_a_reference_to_what_is_not_there_says_so",
        "tests/strategies/test_plans.py::test_r4_r6_a_wrong_reference_costs_its_step_and_never_the_plan",
        "tests/strategies/test_plan_execute.py::test_r4_a_plan_with_wrong_references_is_carried_out_and_its_wrong_steps_are_patched",
    ),
    (
        "R7",
        "recovery: retry, patch, reflect, append; completed steps never run again; waves in dag mode",
        "tests/strategies/test_plan_execute.py::test_a_failed_try_is_made_again_with_the_error",
        "tests/strategies/test_plan_execute.py::test_a_patch_rewrites_what_failed_and_no_completed_step_runs_again",
        "tests/strategies/test_plan_execute.py::test_after_the_patch_the_step_is_failed_and_reflection_decides",
        "tests/strategies/test_plan_execute.py::test_an_unmet_goal_appends_steps_and_nothing_runs_twice",
        "tests/strategies/test_plan_execute.py::test_steps_of_a_wave_run_at_once_and_the_next_wave_waits",
        "tests/strategies/test_plans.py::test_a_patch_rewrites_failed_and_pending_steps_only",
        "tests/strategies/test_plan_execute.py::test_r7_r3_patches_and_refinements_have_limits_of_their_own",
    ),
    (
        "R8",
        "quantities of tools: shown to the planner, and missing steps are added",
        "tests/strategies/test_plan_execute.py::test_the_planner_is_shown_the_required_calls",
        "tests/strategies/test_plan_execute.py::test_r8_the_model_writes_the_arguments_of_missing_calls_once",
        "tests/strategies/test_plan_execute.py::test_r8_a_tool_that_may_have_effects_is_called_only_as_a_model_chose",
        "tests/strategies/test_plans.py::test_quantities_are_read",
        "tests/strategies/test_plans.py::test_missing_calls_are_those_of_tool_call_steps",
        "tests/strategies/test_plan_execute.py::test_r8_a_call_for_several_entities_is_one_call_each",
        "tests/strategies/test_plans.py::test_r8_entities_are_one_call_each_and_who_needs_them_needs_all",
    ),
    (
        "R9",
        "plans in SQLite as they run, and in memory without it; a killed process goes on",
        "tests/strategies/test_plans.py::test_a_plan_is_the_same_from_the_record_and_from_the_database",
        "tests/strategies/test_plans.py::test_each_change_of_a_status_is_in_the_database_when_it_happens",
        "tests/strategies/test_plans.py::test_killed_in_a_wave_and_gone_on_with_no_completed_step_runs_again",
        "tests/strategies/test_plans.py::test_r9_a_plan_whose_run_file_is_gone_is_a_clear_error",
    ),
    (
        "R10",
        "two phases: thoughts that know the tools, level by level, then a loop guided by the best path",
        "tests/strategies/test_tree_then_act.py::test_the_defaults_are_the_designs",
        "tests/strategies/test_tree_then_act.py::test_three_levels_of_three_are_planned_and_then_it_acts",
        "tests/strategies/test_tree_then_act.py::test_a_joint_reply_that_cannot_be_read_is_asked_one_by_one",
        "tests/strategies/test_tree_then_act.py::test_no_more_than_the_breadth_survive_a_level",
        "tests/strategies/test_tree_then_act.py::test_thoughts_know_the_tools_and_none_is_called_for_them",
        "tests/strategies/test_tree_then_act.py::test_the_loop_hangs_below_the_best_path_and_is_told_it",
        "tests/strategies/test_tree_then_act.py::test_the_floor_is_lowered_once_when_a_whole_level_is_weak",
        "tests/strategies/test_tree_then_act.py::test_the_floor_is_lowered_once_in_a_run",
        "tests/strategies/test_tree_then_act.py::test_two_levels_without_progress_end_the_planning",
        "tests/strategies/test_tree_then_act.py::test_r10_stagnation_does_not_end_the_planning_unless_it_is_set",
    ),
    (
        "R11",
        "adaptive: classify, choose, delegate, and say so; a partial result falls back to ReAct",
        "tests/strategies/test_adaptive.py::test_the_rules",
        "tests/strategies/test_adaptive.py::test_each_kind_goes_to_its_strategy_without_a_call",
        "tests/strategies/test_adaptive.py::test_a_model_is_asked_when_the_rules_do_not_decide",
        "tests/strategies/test_adaptive.py::test_a_partial_result_falls_back_to_the_default_and_says_so",
        "tests/strategies/test_adaptive.py::test_turned_off_everything_goes_to_the_named_default",
        "tests/strategies/test_adaptive.py::test_r11_the_sources_examples_route_as_it_says",
        "tests/strategies/test_adaptive.py::test_r11_what_no_rule_decides_goes_to_the_model",
        "tests/strategies/test_adaptive.py::test_r11_a_reply_may_use_the_sources_words",
        "tests/strategies/test_adaptive.py::test_r11_what_cannot_be_read_is_recorded_as_unreadable",
        "tests/strategies/test_adaptive.py::test_r11_a_sweeps_table_has_the_routed_strategy",
        "tests/views/test_waiting.py::test_r11_the_progress_names_the_strategy_that_was_chosen",
    ),
    (
        "R12",
        "strategies of one's own, found by name; what each is given and gives back",
        "tests/contract/slow/test_plugins.py::test_a_strategy_of_a_package_runs_by_name_from_a_file_and_in_a_sweep",
        "tests/contract/slow/test_plugins.py::test_the_designs_names_are_strategies",
        "tests/core/test_parts.py::test_r12_the_designs_names_of_settings_are_accepted",
        "tests/core/test_parts.py::test_r12_a_name_of_a_setting_that_is_not_there_is_refused",
        "tests/lab/test_lab_defaults.py::test_r12_a_labs_system_prompt_is_that_of_tasks_without_one",
        "tests/lab/test_lab_defaults.py::test_r12_a_labs_level_is_that_of_strategies_without_one",
        "tests/strategies/test_named_strategies.py::test_a_name_gives_the_same_run_as_its_strategy",
        "tests/contract/test_designs.py::test_a_strategy_goes_by_the_designs_name_in_a_shell",
        "tests/contract/test_contract.py::test_every_prompt_shows_problem_context_and_path",
        "tests/core/test_system_prompt.py::test_it_stands_first_in_each_model_call_of_any_strategy",
        "tests/contract/test_designs.py::test_the_tier_fits_each_prompt_of_a_plan",
        "tests/strategies/test_react.py::test_a_long_result_is_cut_for_the_model_and_whole_in_the_record",
        "tests/strategies/test_react.py::test_the_rest_of_a_long_result_can_be_asked_for",
        "tests/analysis/test_steps.py::test_each_action_stands_beside_what_was_thought_and_observed",
        "tests/contract/test_designs.py::test_what_a_run_gives_back",
        "tests/contract/test_project.py::test_every_strategy_says_what_it_is_for_and_what_it_costs",
    ),
    (
        "R13",
        "the plain loop with tools is a strategy too, as are chain of thought, best of N, self-consistency",
        "tests/strategies/test_react.py::test_the_plain_loop_ends_with_a_reply_without_a_call",
        "tests/strategies/test_react.py::test_the_plain_loop_ends_at_its_limit",
        "tests/analysis/test_anytime.py::test_the_baselines_are_those_the_field_asks_for",
        "tests/search/test_tree_of_thoughts.py::test_best_of_n_over_a_search_samples_anew",
        "tests/search/test_tree_of_thoughts.py::test_self_consistency_takes_the_majority",
        "tests/contract/test_contract.py::test_a_strategy_keeps",
    ),
    (
        "R14",
        "structured output: the provider's schema or a prompt for the tier, repair, validation, retries",
        "tests/strategies/test_structured.py::test_the_schema_goes_to_the_provider_and_the_value_comes_back",
        "tests/strategies/test_structured.py::test_a_server_that_refuses_schemas_is_asked_without",
        "tests/strategies/test_structured.py::test_the_prompt_is_fitted_to_the_tier",
        "tests/strategies/test_structured.py::test_a_value_is_found_wherever_it_stands",
        "tests/strategies/test_structured.py::test_what_is_badly_written_is_repaired_and_says_so",
        "tests/strategies/test_structured.py::test_a_reply_that_was_cut_off_is_told_apart_and_no_number_is_made_up",
        "tests/strategies/test_structured.py::test_a_retry_is_a_further_turn_with_the_exact_error_and_a_new_draw",
        "tests/contract/test_designs.py::test_structured_output_is_retried_twice",
    ),
    (
        "R15",
        "a long transcript is rewritten by templates or by a model, for one strategy or for all",
        "tests/strategies/test_synthesis.py::test_a_long_transcript_is_rewritten_by_templates",
        "tests/strategies/test_synthesis.py::test_deep_asks_the_model_and_goes_on_from_its_notes",
        "tests/strategies/test_synthesis.py::test_each_rewriting_is_an_event_with_its_sizes",
        "tests/strategies/test_synthesis.py::test_set_for_one_and_for_all",
        "tests/contract/test_designs.py::test_synthesis_is_set_for_all_that_adaptive_chooses_or_for_one_choice",
        "tests/strategies/test_synthesis.py::test_r15_off_leaves_the_conversation_whole",
        "tests/strategies/test_synthesis.py::test_r15_a_strategy_inside_overrides_the_setting_for_all",
    ),
    (
        "R16",
        "required tools come before the answer; a budget of calls for each, in parallel mode",
        "tests/strategies/test_react.py::test_a_required_tool_comes_before_the_answer",
        "tests/strategies/test_react.py::test_a_satisfied_required_tool_may_be_called_again_up_to_two_times",
        "tests/strategies/test_react.py::test_r16_a_required_tool_that_only_failed_holds_the_answer_until_its_limit",
        "tests/strategies/test_react.py::test_r16_without_a_limit_of_its_own_a_failing_tool_holds_the_answer_to_the_end",
        "tests/strategies/test_react.py::test_r16_an_output_tool_is_never_blocked",
        "tests/strategies/test_react.py::test_r16_one_call_a_turn_without_parallel",
        "tests/strategies/test_plan_execute.py::test_r8_a_requirement_that_is_not_met_is_recorded",
        "tests/strategies/test_plan_execute.py::test_r16_required_calls_that_were_made_allow_success",
    ),
    (
        "R17",
        "when results bring little new, or no tool is left, the model is asked to write",
        "tests/strategies/test_react.py::test_when_little_is_new_it_is_told_to_write",
        "tests/strategies/test_react.py::test_a_satisfied_required_tool_may_be_called_again_up_to_two_times",
        "tests/strategies/test_react.py::test_r17_an_output_tool_is_asked_for_once_the_search_tools_are_satisfied",
    ),
    (
        "R18",
        "tool calls written as JSON text are carried out; native ones come first",
        "tests/strategies/test_react.py::test_a_tool_call_written_as_text_is_carried_out",
        "tests/strategies/test_react.py::test_a_text_call_of_an_unknown_tool_is_told_so",
        "tests/strategies/test_text_tool_calls.py::test_a_call_in_any_of_its_forms",
        "tests/strategies/test_text_tool_calls.py::test_names_are_the_tools_own",
        "tests/strategies/test_thinking_level.py::test_a_tool_call_within_thinking_is_never_carried_out",
    ),
    (
        "K1",
        "four levels of thinking, each with its tokens and an instruction; an unknown one is off and warns",
        "tests/strategies/test_thinking_level.py::test_a_level_asks_for_reasoning_under_a_heading",
        "tests/strategies/test_thinking_level.py::test_off_leaves_everything_as_it_is",
        "tests/strategies/test_thinking_level.py::test_an_unknown_level_is_off_and_warns_once",
        "tests/strategies/test_thinking_level.py::test_a_level_is_read_in_any_case",
        "tests/strategies/test_thinking_level.py::test_levels_have_public_budgets_and_prompts",
    ),
    (
        "K2",
        "what calls for a reflection: an interval, a failed tool, little confidence",
        "tests/strategies/test_thinking_level.py::test_the_defaults_are_the_designs",
        "tests/strategies/test_thinking_level.py::test_it_reflects_every_so_many_turns",
        "tests/strategies/test_thinking_level.py::test_it_reflects_before_the_turn_after_a_tool_failed_and_then_the_error_is_cleared",
        "tests/strategies/test_thinking_level.py::test_it_reflects_after_a_reply_of_little_confidence",
    ),
    (
        "K3",
        "when one is due; turns are counted, errors come from the tools, the last one can be read",
        "tests/strategies/test_thinking_level.py::test_off_leaves_everything_as_it_is",
        "tests/strategies/test_thinking_level.py::test_it_reflects_every_so_many_turns",
        "tests/strategies/test_thinking_level.py::test_it_reflects_before_the_turn_after_a_tool_failed_and_then_the_error_is_cleared",
        "tests/strategies/test_thinking_level.py::test_a_reflection_is_told_to_the_next_turn_alone_and_never_stops_it",
        "tests/strategies/test_thinking_level.py::test_the_managers_questions_can_be_asked_from_outside",
    ),
    (
        "K4",
        "what it asks, with the last three results and any error; recorded, it clears the errors",
        "tests/strategies/test_thinking_level.py::test_the_reflection_prompt_has_the_last_three_results",
        "tests/strategies/test_thinking_level.py::test_it_reflects_before_the_turn_after_a_tool_failed_and_then_the_error_is_cleared",
    ),
    (
        "K5",
        "its fields; it never stops the loop",
        "tests/strategies/test_thinking_level.py::test_a_reflection_is_told_to_the_next_turn_alone_and_never_stops_it",
    ),
    (
        "K6",
        "thinking is kept apart from the answer; the level is the provider's own effort where there is one",
        "tests/strategies/test_thinking_level.py::test_thinking_is_kept_apart_from_the_answer",
        "tests/views/test_explorer_recording.py::test_thinking_is_told_apart_from_the_reply",
        "tests/strategies/test_thinking_level.py::test_the_level_is_the_providers_own_effort_where_there_is_one",
        "tests/analysis/test_frames.py::test_thinking_stands_beside_what_it_led_to",
        "tests/strategies/test_thinking_level.py::test_a_tool_call_within_thinking_is_never_carried_out",
    ),
    (
        "K7",
        "any strategy takes a level",
        "tests/strategies/test_thinking_level.py::test_every_strategy_takes_a_level",
        "tests/strategies/test_thinking_level.py::test_calls_for_json_get_the_instruction_and_their_replies_are_read",
    ),
    (
        "S1",
        "a classifier reads which tools are required, how often, and which are relevant",
        "tests/strategies/test_tool_needs.py::test_s1_what_a_classifier_writes_is_read",
        "tests/strategies/test_tool_needs.py::test_s1_the_sources_words_are_read_in_any_near_form",
        "tests/strategies/test_tool_needs.py::test_s1_what_the_classifier_requires_comes_before_the_answer",
        "tests/strategies/test_tool_needs.py::test_s1_a_plan_is_shown_what_is_required_and_gets_the_steps_that_it_lacks",
        "tests/strategies/test_react.py::test_s1_a_limit_on_a_tool_can_be_set_by_hand",
        "tests/strategies/test_plans.py::test_missing_calls_are_those_of_tool_call_steps",
        "tests/strategies/test_react.py::test_a_satisfied_required_tool_may_be_called_again_up_to_two_times",
        "tests/strategies/test_react.py::test_r16_an_output_tool_is_never_blocked",
    ),
    (
        "S2",
        "every strategy receives result compression, a context profile, ids and a system prompt",
        "tests/lab/test_lab_defaults.py::test_s2_a_profile_sets_how_much_of_a_result_the_model_is_shown",
        "tests/lab/test_lab_defaults.py::test_s2_a_profile_fits_histories_prompts_and_nested_strategies",
        "tests/lab/test_lab_defaults.py::test_s2_ids_are_in_the_header_and_nowhere_without_them",
        "tests/lab/test_lab_defaults.py::test_s2_r12_every_strategy_can_read_the_context_of_its_lab",
        "tests/lab/test_lab_defaults.py::test_s2_r4_calls_of_tools_and_plans_are_attributed_to_the_agent",
        "tests/strategies/test_transformed_results.py::test_the_model_sees_the_text_and_the_record_keeps_the_whole",
        "tests/strategies/test_transformed_results.py::test_a_lab_has_one_for_all_without_their_own",
        "tests/strategies/test_transformed_results.py::test_the_whole_result_can_be_recalled_by_its_number",
    ),
    (
        "S3",
        "each step names the strategy that was asked for and the one that was selected",
        "tests/strategies/test_adaptive.py::test_s3_each_step_tells_the_strategy_asked_for_and_the_one_selected",
        "tests/strategies/test_adaptive.py::test_s3_a_result_names_the_strategy_selected_and_the_one_used",
        "tests/strategies/test_adaptive.py::test_s3_progress_shows_the_choice_calls_tokens_and_seconds",
    ),
    (
        "S4",
        "a result is completed, partial or failed",
        "tests/runtime/test_budget.py::test_the_status_of_a_run",
    ),
    (
        "S5",
        "critiques, conclusions and earlier turns are one memory, within a session and, if wanted, beyond",
        "tests/lab/test_memory.py::test_s5_what_a_critic_learnt_is_known_to_a_later_turn",
        "tests/lab/test_memory.py::test_s5_what_deep_think_concluded_is_known_to_a_later_agent",
        "tests/lab/test_memory.py::test_s5_a_later_turn_of_a_session_knows_the_earlier_ones",
        "tests/lab/test_memory.py::test_s5_any_strategy_of_a_later_run_knows_critiques_and_conclusions",
        "tests/lab/test_memory.py::test_s5_the_record_stays_the_same_when_memory_grows",
    ),
    (
        "S6",
        "a tool that writes files into one folder, denied unless allowed",
        "tests/tools/test_file_tools.py::test_s6_a_new_file_is_written_below_the_root",
        "tests/tools/test_file_tools.py::test_s6_it_is_denied_unless_it_is_allowed",
        "tests/tools/test_file_tools.py::test_s6_no_path_leads_outside",
        "tests/strategies/test_tool_aliases.py::test_s6_in_native_calls_and_calls_as_text",
        "tests/strategies/test_tool_aliases.py::test_s6_in_plans",
        "tests/strategies/test_tool_aliases.py::test_s6_in_the_settings_of_a_strategy",
    ),
    (
        "S7",
        "the Deep Think tool takes its sizes; its result is the whole report",
        "tests/lab/test_deep_think_tool.py::test_d5_s7_it_takes_the_sizes_of_the_search",
        "tests/lab/test_deep_think_tool.py::test_s7_its_result_is_the_whole_report",
        "tests/lab/test_deep_think_tool.py::test_d14_the_report_is_shortened_by_the_callers_limit_alone",
    ),
    (
        "S8",
        "CONVERGE is given each branch; its evaluations are matched by name",
        "tests/strategies/test_deep_think.py::test_s8_converge_is_told_of_each_branch",
        "tests/strategies/test_deep_think.py::test_d1_s8_converge_is_told_the_confidence_and_the_reflection_of_each_branch",
        "tests/strategies/test_deep_think.py::test_d6_no_score_reaches_another_approach_without_a_warning",
    ),
    (
        "S9",
        "a level from a string in any case; a reflection as a dictionary; whether one is due, and why",
        "tests/strategies/test_thinking_level.py::test_a_level_is_read_in_any_case",
        "tests/strategies/test_thinking_level.py::test_the_managers_questions_can_be_asked_from_outside",
    ),
    (
        "S10",
        "a run that a budget interrupts says so apart from its answer, and counts its turns",
        "tests/runtime/test_budget.py::test_an_interrupted_run_says_so_apart_from_its_answer",
    ),
]

NOTES = {
    "T9": 'With `answer="best_path"`, a search that has a score but no path that holds an answer answers "".',
    "T10": "A candidate's `proposed` and `evaluated` stand together, as the source's list allows.",
    "T5": "A prompt without slots precedes the default one; of several scores the last counts.",
    "T11": "A price or a length that is not known is admitted in a ramp, with a stated overshoot.",
    "T13": "Ids come from the place in the tree, and a rerun makes no call.",
    "T14": "Nested strategies are settings, which every listing of settings shows.",
    "T15": "30 calls, as counted; the source's formula says 36.",
    "M3": "Built as documented: a path ends at the limit, and the search goes on.",
    "M6": "The best score never falls; in the source it can.",
    "M7": "Each search trims; in the source best-first alone does. `bfs` is `BreadthFirst`.",
    "M9": "A score that cannot be read is a state; the source makes it 0.5. Lines of a reply without a list "
    "are thoughts too.",
    "M12": "`write-file` needs permission also where no policy is set.",
    "M13": "In the one vocabulary of stop codes.",
    "D5": "Clamping is reported.",
    "D6": "By name, one to one; each other match is a note. Scales of 0–1 and 0–100 are understood.",
    "D8": "A synthesis in prose is the synthesis; in place of JSON without one, and of a reply that was cut "
    "off, the best readable branch answers, with a note. A confidence of 3.0 is marked as assumed.",
    "D9": "The time of a group begins when its first call is sent.",
    "D13": "That tools come first in tool-heavy categories is a prompt, not a condition.",
    "D14": "The report that the tool gives begins with the final solution. A tree search with tools uses it "
    "once, for its first thought.",
    "D15": "Caps are in estimated tokens.",
    "D16": "The most confident iteration answers; in the source the last one.",
    "R4": "Ids are the places of steps, whatever the model writes.",
    "R7": "A patch that names a completed step leaves it alone.",
    "R10": "Stagnation ends the planning only where `min_score_improvement` is set.",
    "R16": "Required count + 2 binds required tools alone.",
    "K1": "An unknown level warns.",
    "K2": "A reported confidence below 0.5 calls for a reflection.",
    "K7": "Judging by the probability of one token asks for no reasoning: it would take the token's place. "
    "The level of a lab is that of `WithThinking` without one; for other strategies it warns.",
    "S3": "The progress line has this project's form.",
    "S4": "A search that ends at its depth limit is `partial`.",
    "S6": "Named `write-file`; the source's name is an alias.",
}
"""Departures from a source, and what of a line does not hold yet."""

HEAD = """\
# Conformance

tot_lab brings five published designs together: Tree of Thoughts by beam search (T) and as a state machine
(M), Deep Think (D), the reasoning strategies of an agent framework (R) and its thinking levels (K), with ten
lines (S) that a second reading of the sources added. Each line stands here in a few words, with the tests
that fail when it is broken: their file, and their number if there are several. The last column names each
departure from the source. The names of the tests are in `tests/contract/test_conformance.py`, which writes
this page: `make conformance`.

| line | what | tests | departures |
|---|---|---|---|
"""


def page() -> str:
    """docs/conformance.md: a row for each line."""
    return HEAD + "".join(
        f"| {id} | {words} | {shown_by(tests)} | {NOTES.get(id, '')} |\n" for id, words, *tests in LINES
    )


def shown_by(tests: list[str]) -> str:
    """The files of `tests`, each with the number of its tests if there are several."""
    files = Counter(Path(test.partition("::")[0]).stem.removeprefix("test_") for test in tests)
    return ", ".join(file if count == 1 else f"{file} ({count})" for file, count in files.items()) or "open"


@cache
def statements_of(path: str) -> list[ast.stmt]:
    return ast.parse((ROOT / path).read_text()).body


def test_every_line_is_there_once_and_in_order():
    assert [id for id, *_ in LINES] == IDS
    assert len(IDS) == 72 + 10
    assert NOTES.keys() <= set(IDS)


@pytest.mark.slow
def test_what_is_named_is_a_test_that_is_never_skipped():
    from support import for_each

    for_each(sorted({test for _, _, *tests in LINES for test in tests}), is_a_test_that_is_never_skipped)


def is_a_test_that_is_never_skipped(test: str) -> None:
    path, _, name = test.partition("::")
    assert name.startswith("test_")
    (found,) = [node for node in statements_of(path) if getattr(node, "name", "") == name]
    around = [node for node in statements_of(path) if isinstance(node, ast.Assign | ast.If | ast.Expr)]
    assert not re.search(r"\b(skip|skipif|xfail|importorskip|needs_\w+)\b", ast.unparse(found))
    assert not any(re.search(r"\b(pytestmark.*skip|importorskip)", ast.unparse(node)) for node in around)


def test_the_page_has_one_short_row_for_each_line():
    rows = page().removeprefix(HEAD).splitlines()
    assert [row.split(" | ")[0] for row in rows] == [f"| {id}" for id in IDS]
    assert all(row.count("|") == 5 for row in rows)
    assert max(len(row) for row in rows) < 400
    named = (
        "tests/strategies/test_react.py::test_a",
        "tests/strategies/test_react.py::test_b",
        "tests/x/test_y.py::test_c",
    )
    assert shown_by([*named]) == "react (2), y"


if __name__ == "__main__":
    PAGE.write_text(page())
