from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.utils.response import response_status_message


class CaptchaRetryMiddleware(RetryMiddleware):
    def process_response(self, request, response, spider):
        if request.meta.get("dont_retry", False):
            return response
        if response.status in self.retry_http_codes:
            reason = response_status_message(response.status)
            return self._retry(request, reason) or response
        if response.status == 200 and b"Captcha" in response.body:
            spider.logger.info("captcha at %s", response.url)
            return self._retry(request, "captcha") or response
        return response
