/* Callbacks of events: when they come, with what, and what they may call. */
#include "common.h"

static int came;
static cl_int status_of[8];
static cl_event event_of[8];

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *slot) {
    int at = (int)(intptr_t)slot;
    status_of[at] = status;
    event_of[at] = event;
    tally_add(&came);
}

CASE(a_completion_callback_gets_its_event_and_status) {
    open_device();
    cl_event marker;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    EXPECT(CL_SUCCESS, clSetEventCallback(marker, CL_COMPLETE, on_event, (void *)3));
    OK(clFlush(queue));
    tally_await(&came, 1, "callback");
    say("status %s, the same event: %s", event_state_name(status_of[3]), event_of[3] == marker ? "yes" : "no");
    CHECK(status_of[3] == CL_COMPLETE && event_of[3] == marker, "the callback got other values");
}

CASE(callbacks_for_every_state_all_come) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err)), marker;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &gate, &marker));
    EXPECT(CL_SUCCESS, clSetEventCallback(marker, CL_SUBMITTED, on_event, (void *)CL_SUBMITTED));
    EXPECT(CL_SUCCESS, clSetEventCallback(marker, CL_RUNNING, on_event, (void *)CL_RUNNING));
    EXPECT(CL_SUCCESS, clSetEventCallback(marker, CL_COMPLETE, on_event, (void *)CL_COMPLETE));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    tally_await(&came, 3, "callbacks");
    /* A callback may come after its state was passed, with the state it was registered for or a later one. */
    for (int state = CL_COMPLETE; state <= CL_SUBMITTED; state++)
        CHECK(status_of[state] <= state && status_of[state] >= CL_COMPLETE, "the callback for %s got %s", event_state_name(state), event_state_name(status_of[state]));
    say("%d callbacks", came);
}

CASE(a_callback_registered_after_completion_still_comes) {
    open_device();
    cl_event marker;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    OK(clFinish(queue));
    for (intptr_t i = 0; i < 3; i++) OK(clSetEventCallback(marker, CL_COMPLETE, on_event, (void *)i));
    tally_await(&came, 3, "callbacks");
    say("%d callbacks, %s", came, event_state_name(status_of[2]));
}

/* PoCL 3.1 never calls back for a failed event. */
CASE_TELECL_ONLY(a_failed_event_calls_back_with_its_status) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err)), marker;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &gate, &marker));
    OK(clSetEventCallback(gate, CL_COMPLETE, on_event, (void *)0));
    OK(clSetEventCallback(marker, CL_COMPLETE, on_event, (void *)1));
    OK(clSetUserEventStatus(gate, -99));
    tally_await(&came, 2, "callbacks");
    say("gate %s, marker %s", event_state_name(status_of[0]), event_state_name(status_of[1]));
    CHECK(status_of[0] == -99, "the gate's callback got %s", event_state_name(status_of[0]));
    CHECK(status_of[1] < 0, "the dependent's callback got %s", event_state_name(status_of[1]));
}

CASE(a_user_events_callback_comes_when_it_is_set) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    OK(clSetEventCallback(gate, CL_COMPLETE, on_event, (void *)0));
    CHECK(came == 0, "the callback came before the event was set");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    tally_await(&came, 1, "callback");
    say("%s", event_state_name(status_of[0]));
}

CASE(wrong_callback_registrations_are_refused) {
    open_device();
    cl_event gate = MADE(clCreateUserEvent(context, &err));
    EXPECT(CL_INVALID_EVENT, clSetEventCallback(NULL, CL_COMPLETE, on_event, NULL));
    EXPECT(CL_INVALID_VALUE, clSetEventCallback(gate, CL_COMPLETE, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clSetEventCallback(gate, CL_QUEUED, on_event, NULL));
    EXPECT(CL_INVALID_VALUE, clSetEventCallback(gate, -1, on_event, NULL));
}

static cl_mem chained;
static cl_int chain_values[5] = {10, 20, 30, 40, 50};

/* Enqueues the next write of the chain and hangs itself on it. */
static void CL_CALLBACK enqueue_next(cl_event event, cl_int status, void *step) {
    (void)event, (void)status;
    intptr_t at = (intptr_t)step;
    if (at == 5) {
        tally_add(&came);
        return;
    }
    cl_event written;
    OK(clEnqueueWriteBuffer(queue, chained, CL_FALSE, (size_t)at * 4, 4, &chain_values[at], 0, NULL, &written));
    OK(clSetEventCallback(written, CL_COMPLETE, enqueue_next, (void *)(at + 1)));
    OK(clFlush(queue));
    OK(clReleaseEvent(written));
}

CASE(a_callback_may_enqueue) {
    open_device();
    cl_int result[5] = {0};
    chained = buffer_of(CL_MEM_READ_WRITE, sizeof result, result);
    cl_event start;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &start));
    OK(clSetEventCallback(start, CL_COMPLETE, enqueue_next, (void *)0));
    OK(clFlush(queue));
    tally_await(&came, 1, "end of the chain");
    read_all(chained, result, sizeof result);
    show_ints("written by callbacks", result, 5);
    CHECK(memcmp(result, chain_values, sizeof result) == 0, "the chain is incomplete");
}

static void CL_CALLBACK open_gate(cl_event event, cl_int status, void *gate) {
    (void)event, (void)status;
    OK(clSetUserEventStatus((cl_event)gate, CL_COMPLETE));
    tally_add(&came);
}

CASE(a_callback_may_set_a_user_event) {
    open_device();
    cl_command_queue other = MADE(clCreateCommandQueue(context, device, 0, &err));
    cl_event gate = MADE(clCreateUserEvent(context, &err)), first, second;
    OK(clEnqueueMarkerWithWaitList(other, 1, &gate, &second));
    OK(clFlush(other));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &first));
    OK(clSetEventCallback(first, CL_COMPLETE, open_gate, gate));
    OK(clFlush(queue));
    EXPECT(CL_SUCCESS, clWaitForEvents(1, &second));
    tally_await(&came, 1, "callback");
}

static void CL_CALLBACK create_and_release(cl_event event, cl_int status, void *unused) {
    (void)status, (void)unused;
    cl_mem buffer = MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &err));
    CHECK(INFO(size_t, clGetMemObjectInfo, buffer, CL_MEM_SIZE) == 4096, "a query inside a callback");
    CHECK(INFO(cl_int, clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS) == CL_COMPLETE, "the event inside its callback");
    OK(clReleaseMemObject(buffer));
    OK(clReleaseEvent(event));
    tally_add(&came);
}

CASE(a_callback_may_create_query_and_release) {
    open_device();
    for (int i = 0; i < 8; i++) {
        cl_event marker;
        OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
        OK(clSetEventCallback(marker, CL_COMPLETE, create_and_release, NULL));
    }
    OK(clFlush(queue));
    tally_await(&came, 8, "callbacks");
    OK(clFinish(queue));
    say("%d callbacks", came);
}

CASE(a_thousand_callbacks_come_once_each) {
    open_device();
    for (int i = 0; i < 1000; i++) {
        cl_event marker;
        OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
        OK(clSetEventCallback(marker, CL_COMPLETE, on_event, (void *)(intptr_t)(i % 8)));
        OK(clReleaseEvent(marker));
    }
    OK(clFinish(queue));
    tally_await(&came, 1000, "callbacks");
    say("%d callbacks", came);
    CHECK(came == 1000, "%d callbacks for 1000 events", came);
}
