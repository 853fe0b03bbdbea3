// Sends what the Java SDK of camellia's delay queue sends, and checks what comes back: java Sdk.java <url>

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Sdk {
    private static final String TOPIC = "订单 a";
    private static final String TEXT = "{\"x\":\"é &\"}";
    private static final Pattern MESSAGE = Pattern.compile("\\{\"topic\":.*?\"status\":\\d\\}");

    private final HttpClient http = HttpClient.newBuilder()
        .version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();
    private final String url;

    Sdk(String url) {
        this.url = url;
    }

    public static void main(String[] arguments) throws Exception {
        Sdk sdk = new Sdk(arguments[0]);
        sdk.delayAndFinish();
        sdk.redelivery();
        sdk.nack();
        sdk.cancel();
        sdk.duplicate();
        sdk.refusal();
        System.out.println("all is well");
    }

    private void delayAndFinish() throws Exception {
        String sent = send("id+1/2", 700);
        check(number(sent, "triggerTime") - number(sent, "produceTime") == 700, "delay", sent);
        check(sent.contains("\"msgId\":\"id+1/2\",\"msg\":\"{\\\"x\\\":\\\"é &\\\"}\""), "text", sent);
        check(pull().isEmpty(), "nothing is early", sent);
        check(status("id+1/2") == 1, "it waits", sent);
        String pulled = poll(5000).get(0);
        check(System.currentTimeMillis() >= number(pulled, "triggerTime") - 5, "never early", pulled);
        check(number(pulled, "status") == 3 && number(pulled, "retry") == 1, "it is pulled", pulled);
        check(ack("id+1/2", true).equals("{\"code\":200,\"msg\":\"success\"}"), "ack", pulled);
        check(status("id+1/2") == 4 && pull().isEmpty(), "it is finished", pulled);
    }

    private void redelivery() throws Exception {
        send("again", 0);
        check(number(pull(300).get(0), "retry") == 1, "first delivery", "");
        String second = poll(5000).get(0);
        check(number(second, "retry") == 2, "it comes again after its ack timeout", second);
        ack("again", true);
        check(status("again") == 4, "it is finished", second);
    }

    private void nack() throws Exception {
        send("nack", 0);
        pull();
        ack("nack", false);
        String second = pull().get(0);
        check(number(second, "retry") == 2, "it comes again at once", second);
        ack("nack", true);
    }

    private void cancel() throws Exception {
        send("cancel", 60_000);
        check(delete("cancel").startsWith("{\"code\":200"), "delete", "");
        check(delete("cancel").startsWith("{\"code\":404"), "a second delete", "");
        check(status("cancel") == 7, "it is deleted", "");
        check(get("unknown").startsWith("{\"code\":404"), "an unknown one", "");
    }

    private void duplicate() throws Exception {
        String first = send("twice", 60_000);
        check(send("twice", 1).equals(first), "the first counts", first);
        check(delete("twice").startsWith("{\"code\":200"), "delete", first);
    }

    private void refusal() throws Exception {
        Map<String, Object> form = new HashMap<>();
        form.put("topic", "");
        form.put("msgId", "m");
        check(post("getMsg", form, 5000).startsWith("{\"code\":400"), "an empty topic", "");
    }

    private String send(String msgId, long delayMillis) throws Exception {
        Map<String, Object> form = new HashMap<>();
        form.put("topic", TOPIC);
        form.put("msg", TEXT);
        form.put("delayMillis", delayMillis);
        form.put("ttlMillis", -1L);
        form.put("maxRetry", -1);
        form.put("msgId", msgId);
        return message(post("sendMsg", form, 5000));
    }

    private List<String> pull() throws Exception {
        return pull(-1);
    }

    private List<String> pull(long ackTimeoutMillis) throws Exception {
        return messages(post("pullMsg", pulling(ackTimeoutMillis), 5000));
    }

    private List<String> poll(long longPollingTimeoutMillis) throws Exception {
        Map<String, Object> form = pulling(-1);
        form.put("longPollingTimeoutMillis", longPollingTimeoutMillis);
        return messages(post("longPollingMsg", form, 2 * longPollingTimeoutMillis));
    }

    private Map<String, Object> pulling(long ackTimeoutMillis) {
        Map<String, Object> form = new HashMap<>();
        form.put("topic", TOPIC);
        form.put("batch", 10);
        form.put("ackTimeoutMillis", ackTimeoutMillis);
        return form;
    }

    private String ack(String msgId, boolean ack) throws Exception {
        Map<String, Object> form = named(msgId);
        form.put("ack", ack);
        return post("ackMsg", form, 5000);
    }

    private String delete(String msgId) throws Exception {
        return post("deleteMsg", named(msgId), 5000);
    }

    private String get(String msgId) throws Exception {
        return post("getMsg", named(msgId), 5000);
    }

    private long status(String msgId) throws Exception {
        return number(message(get(msgId)), "status");
    }

    private Map<String, Object> named(String msgId) {
        Map<String, Object> form = new HashMap<>();
        form.put("topic", TOPIC);
        form.put("msgId", msgId);
        return form;
    }

    private String post(String operation, Map<String, Object> form, long timeoutMillis) throws Exception {
        List<String> pairs = new ArrayList<>();
        for (Map.Entry<String, Object> each : form.entrySet()) {
            pairs.add(encoded(each.getKey()) + "=" + encoded(String.valueOf(each.getValue())));
        }
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/camellia/delayQueue/" + operation))
            .timeout(Duration.ofMillis(timeoutMillis))
            .header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
            .POST(HttpRequest.BodyPublishers.ofString(String.join("&", pairs)))
            .build();
        HttpResponse<String> response =
            http.send(request, HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
        check(response.statusCode() == 200, "HTTP 200", response.body());
        return response.body();
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private static String message(String answer) {
        check(answer.startsWith("{\"code\":200,\"msg\":\"success\""), "success", answer);
        return messages(answer).get(0);
    }

    private static List<String> messages(String answer) {
        List<String> found = new ArrayList<>();
        Matcher matcher = MESSAGE.matcher(answer);
        while (matcher.find()) {
            found.add(matcher.group());
        }
        return found;
    }

    private static long number(String message, String member) {
        Matcher matcher = Pattern.compile("\"" + member + "\":(\\d+)").matcher(message);
        check(matcher.find(), member, message);
        return Long.parseLong(matcher.group(1));
    }

    private static void check(boolean holds, String what, String answer) {
        if (!holds) {
            throw new AssertionError(what + ": " + answer);
        }
    }
}
